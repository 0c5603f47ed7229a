package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
	"github.com/sluice-dev/sluice/plugins/sluice/internal/host"
	"github.com/sluice-dev/sluice/topology"
)

func socketFlag(c *cobra.Command) *string {
	return c.Flags().String("status-socket", status.DefaultSocket, "unix socket of the running plugin")
}

// machineFlags select a machine other than that of the running plugin.
type machineFlags struct {
	hostRoot, text string
}

func newMachineFlags(c *cobra.Command, hostRoot string) *machineFlags {
	m := &machineFlags{}
	c.Flags().StringVar(&m.hostRoot, "host-root", hostRoot, "read the machine below this `folder`, which holds sys and proc")
	c.Flags().StringVar(&m.text, "machine", "", "describe a made-up machine, e.g. \"2 packages 2 nodes 8 cores 2 threads\"")
	c.MarkFlagsMutuallyExclusive("host-root", "machine")
	return m
}

// given reports whether the flags select a machine.
func (m *machineFlags) given() bool { return m.hostRoot != "" || m.text != "" }

func (m *machineFlags) read() (*topology.Machine, error) { return host.Machine(m.hostRoot, m.text) }

func readStatus(socket string) (*status.Status, error) {
	return statusapi.NewClient(socket).Status()
}

// readInput reads a file, or standard input for "-".
func readInput(c *cobra.Command, name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(c.InOrStdin())
	}
	return os.ReadFile(name)
}

// runtimeDirHelp is the help of the flag that names the runtime folder.
const runtimeDirHelp = "`folder` on tmpfs for original values and the failsafe's plan (default: --state-dir if given, else the configuration's)"
