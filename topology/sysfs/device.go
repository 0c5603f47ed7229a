package sysfs

import (
	"errors"
	"io/fs"

	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// devices reads the PCI devices in the order of their addresses. A device, such as a virtual
// function, may be unplugged meanwhile. Its missing files then leave its node unknown, which
// does no harm.
func (t tree) devices(m *topology.Machine) error {
	const dir = "sys/bus/pci/devices"
	entries, err := fs.ReadDir(t.fsys, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		device := topology.Device{Address: entry.Name()}
		if device.Node, err = t.number(dir+"/"+device.Address+"/numa_node", topology.None); err != nil {
			return err
		}
		if device.CPUs, _, err = t.list(dir + "/" + device.Address + "/local_cpulist"); err != nil {
			return err
		}
		device.CPUs = cpuset.Intersect(device.CPUs, m.Online)
		m.Devices = append(m.Devices, device)
	}
	return nil
}
