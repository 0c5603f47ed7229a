package examine

import (
	"cmp"
	"fmt"
	"io/fs"

	"github.com/sluice-dev/sluice/pkg/peers"
	"github.com/sluice-dev/sluice/pkg/view/migrate"
	"github.com/sluice-dev/sluice/pkg/workload/grants"
	"github.com/sluice-dev/sluice/plugins/sluice/internal/host"
)

// Migration collects the facts about a node's kubelet from which follows what moving the node to
// Sluice takes. It changes nothing.
func Migration(o Options) (*migrate.Facts, error) {
	found, err := o.find()
	if err != nil {
		return nil, err
	}
	if found.ConfigErr != nil {
		return nil, fmt.Errorf("%s: %w", found.ConfigFile, found.ConfigErr)
	}
	f := &migrate.Facts{Config: found.Config}
	if f.Machine, err = host.Machine(found.Root, ""); err != nil {
		return nil, err
	}
	if _, err := f.Config.Fit(f.Machine); err != nil {
		return nil, fmt.Errorf("%s can't be used on this node: %w", cmp.Or(found.ConfigFile, "the built-in configuration"), err)
	}
	kubelet, err := peers.FindKubelet(found.Host)
	if err == nil {
		f.CPU, err = kubelet.CPUManager(found.Host)
	}
	if err == nil {
		f.Memory, err = kubelet.MemoryManager(found.Host)
	}
	if err != nil {
		return nil, err
	}
	f.Service = kubelet.PID != 0
	f.Node, _ = kubelet.Flag("hostname-override")
	if f.Kubelet, err = kubelet.Config(found.Host); err != nil {
		f.KubeletProblem = err.Error()
	}
	readRecord(f, found.Host, kubelet.File(grants.File))
	if found.Status != nil {
		f.Containers = found.Status.Containers
	} else {
		f.StatusProblem = found.StatusErr.Error()
	}
	return f, nil
}

func readRecord(f *migrate.Facts, host fs.FS, file string) {
	text, err := fs.ReadFile(host, file)
	if err == nil {
		f.Record, err = grants.Parse(text)
	}
	if err != nil {
		f.RecordProblem = fmt.Sprintf("/%s: %v", file, err)
	}
}
