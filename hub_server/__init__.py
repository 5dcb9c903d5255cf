"""The environments hub: publish, install, browse and compare environments. `vf-hub serve --data DIR` starts one."""
