package daemon

import (
	"context"
	"os"
	"path/filepath"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

// ownCPUs records the CPUs that the plugin's own threads may use in a file of the runtime
// folder, so that the next start uses them from the beginning. Otherwise a recreated container,
// such as after the update of a DaemonSet, would run on pinned CPUs until the plugin has
// connected and received all containers.
type ownCPUs struct {
	file   string
	newest chan cpuset.Set // the latest CPUs that are not written yet
}

func newOwnCPUs(runtimeDir string) *ownCPUs {
	return &ownCPUs{file: filepath.Join(runtimeDir, "own-cpus"), newest: make(chan cpuset.Set, 1)}
}

// begin confines this process to the CPUs of the last run, if they are recorded.
func (o *ownCPUs) begin() error {
	text, err := os.ReadFile(o.file)
	if err != nil {
		return nil //nolint:nilerr // no earlier run since boot has recorded its CPUs
	}
	cpus, err := cpuset.Parse(string(text))
	if err != nil || cpus.IsEmpty() {
		return err
	}
	return confine(cpus)
}

// confine confines this process to these CPUs. The agent's loop calls it, so it doesn't wait
// for the file to be written.
func (o *ownCPUs) confine(cpus cpuset.Set) error {
	err := confine(cpus)
	select {
	case <-o.newest:
	default:
	}
	o.newest <- cpus
	return err
}

// run writes the file until the context ends, and then the last pending change.
func (o *ownCPUs) run(ctx context.Context, log logrus.FieldLogger) {
	for {
		select {
		case cpus := <-o.newest:
			o.keep(cpus, log)
		case <-ctx.Done():
			select {
			case cpus := <-o.newest:
				o.keep(cpus, log)
			default:
			}
			return
		}
	}
}

func (o *ownCPUs) keep(cpus cpuset.Set, log logrus.FieldLogger) {
	if err := o.write(cpus); err != nil {
		log.WithError(err).Info("The CPUs of Sluice's own threads are not kept: its next start begins on all CPUs")
	}
}

func (o *ownCPUs) write(cpus cpuset.Set) error {
	if err := os.MkdirAll(filepath.Dir(o.file), 0o700); err != nil {
		return err
	}
	next := o.file + ".new"
	if err := os.WriteFile(next, []byte(cpus.String()), 0o600); err != nil {
		return err
	}
	return os.Rename(next, o.file)
}
