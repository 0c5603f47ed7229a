package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/doctor"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/kernel/coresched"
	"github.com/sluice-dev/sluice/pkg/kernel/irq"
	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/pkg/view/render"
)

// doctorOptions are the flags of `sluice doctor`.
type doctorOptions struct {
	hostRoot, config, socket string
	strict                   bool
}

func newDoctor() *cobra.Command {
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Diagnose this node: what works, what does not, and how to fix it",
		Long: `Examine this node: the kernel, cgroups, which mechanism this kernel offers for
each feature and on which cgroups Sluice uses it, the kubelet, the container
runtime and its NRI support, and the running plugin, if there is one. Every
finding that is not ok comes with a fix.

  ok    works
  note  not available, or a substitute for the best mechanism is used
  warn  works badly, or will soon
  fail  keeps Sluice from working

To probe the kernel, doctor briefly creates an empty cgroup; it changes nothing
else. Run it as root on the node or in the plugin's container. It finds the
host's folders and the configuration by asking the running plugin.

Exit status: 0 no finding is fail, 1 at least one is; with --strict, warn
counts as well.`,
		Example: `  sluice doctor
  sluice doctor --strict >/dev/null || echo "look at this node"
  sluice doctor -o json | jq '.findings[] | select(.level != "ok")'
  sluice doctor --host-root /host --config /host/etc/sluice/sluice.yaml`,
		Args: flagsAlone,
	}
	o := &doctorOptions{}
	output := outputFlag(c, "table", "json")
	f := c.Flags()
	f.StringVar(&o.hostRoot, "host-root", "", "`folder` that holds the host's sys, proc, etc, run and var (default: the running plugin's if it exists here, else /)")
	f.StringVarP(&o.config, "config", "c", "", "configuration `file` (default "+usualConfig+", if it exists)")
	f.StringVar(&o.socket, "status-socket", "", "unix socket of the running plugin (default: the configuration's)")
	f.BoolVar(&o.strict, "strict", false, "exit with 1 if there are warnings")
	c.RunE = func(c *cobra.Command, _ []string) error {
		facts, err := o.facts()
		if err != nil {
			return err
		}
		report := doctor.Examine(facts)
		if output.value == "json" {
			err = render.JSON(c.OutOrStdout(), report)
		} else {
			err = render.Doctor(c.OutOrStdout(), &report)
		}
		return errors.Join(err, o.verdict(&report))
	}
	return c
}

// verdict is the error that makes the exit status.
func (o *doctorOptions) verdict(r *doctor.Report) error {
	switch fails, warnings := r.Count(doctor.Fail), r.Count(doctor.Warn); {
	case fails > 0:
		return errors.New(humanize.Count(fails, "finding") + " of level fail: Sluice can't work like this")
	case o.strict && warnings > 0:
		return errors.New(humanize.Count(warnings, "warning") + ", and --strict")
	}
	return nil
}

func (o *doctorOptions) facts() (*doctor.Facts, error) {
	o.likeThePlugin()
	root, err := filepath.Abs(o.hostRoot)
	if err != nil {
		return nil, err
	}
	if _, err := os.ReadDir(root); err != nil {
		return nil, fmt.Errorf("the host's root: %w", err)
	}
	f := &doctor.Facts{Host: os.DirFS(root), Root: root, Arch: runtime.GOARCH, Version: version()}
	o.readConfig(f)
	probe(f)
	f.Runtimes = askRuntimes(context.Background(), root)
	if irqs, err := irq.Open(root); err == nil {
		f.Affinities, _ = irqs.Read() // what can be read
	}
	socket := cmp.Or(o.socket, defaultSocket)
	if f.Config != nil {
		socket = cmp.Or(o.socket, f.Config.StatusSocket)
		f.StateErr, f.RuntimeErr = writable(f.Config.StateDir), writable(f.Config.RuntimeDir)
		f.EvictErr = evicts(f.Config, root)
	}
	if s, err := readStatus(socket); err == nil {
		f.Status = s
	} else {
		f.StatusErr = err
	}
	return f, nil
}

// likeThePlugin takes the host's root folder, where none is named, from the running plugin,
// and with it its configuration. On the node itself a plugin in a pod answers too: its
// folders are not there.
func (o *doctorOptions) likeThePlugin() {
	if o.hostRoot != "" {
		return
	}
	o.hostRoot = "/"
	s, err := readStatus(cmp.Or(o.socket, defaultSocket))
	if err != nil || s.Build.HostRoot == "" || s.Build.HostRoot == "/" {
		return
	}
	if _, err := os.Stat(filepath.Join(s.Build.HostRoot, "proc", "version")); err != nil {
		return
	}
	o.hostRoot, o.config = s.Build.HostRoot, cmp.Or(o.config, s.Config.File)
}

func (o *doctorOptions) readConfig(f *doctor.Facts) {
	f.ConfigFile = configFile(o.config, f.Root)
	if f.ConfigFile == "" {
		f.Config = config.Default()
		return
	}
	data, err := os.ReadFile(f.ConfigFile)
	if err == nil {
		f.Config, err = config.Parse(data)
	}
	if err != nil {
		f.Config, f.ConfigErr = nil, err
	}
}

// probe tries what the kernel has.
func probe(f *doctor.Facts) {
	driver, err := cgroupfs.Open(f.Root)
	if err != nil {
		f.FeaturesErr = err
		return
	}
	defer driver.Close() //nolint:errcheck // nothing is left to lose
	features, err := driver.Probe()
	f.Features, f.FeaturesErr = &features, err
	f.CoreSched, f.CoreSchedWhy = coresched.New().Supported()
}

// writable tells why nothing can be written into a folder, or into the nearest
// above it that exists, where Sluice makes it.
func writable(dir string) error {
	for {
		err := unix.Access(dir, unix.W_OK)
		if !errors.Is(err, unix.ENOENT) || dir == "/" {
			if err != nil {
				return fmt.Errorf("%s: %w", dir, err)
			}
			return nil
		}
		dir = filepath.Dir(dir)
	}
}
