package bed

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/sluice-dev/sluice/test/host"
)

// role is the variable that makes the test program one of the bed's own processes.
const role = "SLUICE_BED_ROLE"

// Main runs the tests of a package that uses the bed, and returns the exit code. The bed
// starts the test program again for two processes of its own, which this function tells
// from a run of the tests:
//
//	func TestMain(m *testing.M) { os.Exit(bed.Main(m)) }
func Main(m *testing.M) int {
	var err error
	switch os.Getenv(role) {
	case "":
		return m.Run()
	case "keeper":
		err = keep(os.Args[1])
	case "node":
		err = holdNode(os.Args[1:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// again is the command that runs the test program in a role.
func again(as string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), role+"="+as)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C on a terminal ends the tests alone
	return cmd
}

// keeper is a process that removes all that a bed has put on the machine as soon as the
// test program closes its end of a pipe: by close, or because it ended, even if it was
// killed or has panicked.
type keeper struct {
	cmd  *exec.Cmd
	pipe io.Closer
	out  io.Reader
}

// startKeeper starts the keeper of the slot, which holds it until all is removed.
func startKeeper(s slot, held *os.File) (*keeper, error) {
	cmd := again("keeper", strconv.Itoa(int(s)))
	cmd.ExtraFiles = []*os.File{held}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &keeper{cmd, pipe, out}, held.Close()
}

// close waits until everything is removed.
func (k *keeper) close() error {
	closed := k.pipe.Close()
	said, read := io.ReadAll(k.out)
	err := k.cmd.Wait()
	if err != nil || len(said) > 0 {
		err = fmt.Errorf("removing the bed: %w: %s", errors.Join(err, read), said)
	}
	return errors.Join(closed, err)
}

// keep is the keeper's process.
func keep(number string) error {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	n, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	if err := slot(n).clean(); err != nil {
		fmt.Println(err)
	}
	return nil
}

// clean ends every process of the slot, and removes its cgroups, links and files. The mount
// and network namespaces of nodes and pods end with their last process.
func (s slot) clean() error {
	tree, err := s.tree()
	if err != nil {
		return err
	}
	err = errors.Join(tree.Thaw(tree.Name), tree.KillAll(tree.Name), tree.Remove(tree.Name), host.UnmountBelow(s.dir()))
	for number := range maxNodes + 1 {
		link, found := netlink.LinkByName(s.link(number))
		if _, none := errors.AsType[netlink.LinkNotFoundError](found); none {
			continue
		}
		if found == nil {
			found = netlink.LinkDel(link)
		}
		err = errors.Join(err, found)
	}
	if err != nil {
		return fmt.Errorf("%s stays: %w", s.dir(), err)
	}
	return os.RemoveAll(s.dir())
}
