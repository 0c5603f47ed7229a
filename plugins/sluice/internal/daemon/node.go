package daemon

import (
	"io/fs"
	"maps"
	"slices"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/kernel/procfs"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/sysfs"
)

// node describes the features of this node's kernel and hardware that pods can use.
func node(cfg *config.Config, driver *cgroupfs.Driver, machine *topology.Machine, host fs.FS, log logrus.FieldLogger) qos.Node {
	n := qos.Node{
		Memory:             machine.Memory(machine.MemoryNodes()),
		Release:            procfs.Release(host),
		DiskNames:          map[string]string{},
		BEPageCachePercent: cfg.Memory.BEPageCachePercent,
	}
	var err error
	if n.Features, err = driver.Probe(); err != nil {
		log.WithError(err).Warn("What this kernel supports could not be found out in full: what is unsure is not used. sluice doctor tells more")
	}
	if n.Swap, err = procfs.HasSwap(host); err != nil {
		log.WithError(err).Warn("Whether the node has swap is not known: containers are kept out of it as if it had some")
		n.Swap = true
	}
	disks, err := sysfs.Disks(host)
	if err != nil {
		log.WithError(err).Warn("The node's disks are not known: I/O limits that name no disk have no effect")
	}
	for name, number := range disks {
		n.DiskNames["/dev/"+name] = number
	}
	n.Disks = slices.Sorted(maps.Values(disks))
	return n
}
