"""`antifreeze platform --gpu`: whether the loader works with the accelerator of this machine."""
