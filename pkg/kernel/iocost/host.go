package iocost

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/topology/sysfs"
)

// Cgroups reads and writes the root cgroup's io.cost.qos; see cgroupfs.Driver.
type Cgroups interface {
	IOCost() (string, error)
	SetIOCost(line string) error
}

// Host reads and writes io.cost of the machine's disks.
type Host struct {
	cgroups Cgroups
	root    fs.FS
}

// Open makes a Host from the cgroups and the root folder that has the host's /sys. The error says
// why this node has no io.cost.
func Open(cgroups Cgroups, root fs.FS) (*Host, error) {
	if _, err := cgroups.IOCost(); err != nil {
		return nil, err
	}
	return &Host{cgroups, root}, nil
}

// Read returns the parameters of all disks on which io.cost was ever enabled, by their numbers.
func (h *Host) Read() (map[string]QoS, error) {
	text, err := h.cgroups.IOCost()
	if err != nil {
		return nil, err
	}
	return parse(text)
}

// Disks lists the disks that io.cost can control; see Disks.
func (h *Host) Disks() ([]Disk, error) { return Disks(h.root) }

// Write writes a disk's parameters. The kernel first waits for all operations that the disk has in
// hand (blk_mq_freeze_queue), which takes forever on a disk that hangs. The error is ErrGone, or
// names the line and the kernel's reason.
func (h *Host) Write(w Write) error {
	err := h.cgroups.SetIOCost(w.To.line(w.Number))
	if errors.Is(err, cgroupfs.ErrNoDevice) {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return err
}

// Disks lists the whole disks below a root folder that a driver has found, have a request queue of
// their own (/sys/block/DISK/mq) and whose media can't be removed. It omits loop devices, partitions,
// and what is built upon disks (dm, md), since io.cost sees their operations when they reach the
// disks. An NVMe disk with several paths has no queue, and the paths have no number.
func Disks(root fs.FS) ([]Disk, error) {
	numbers, err := sysfs.Disks(root)
	if err != nil {
		return nil, err
	}
	var disks []Disk
	for name, number := range numbers {
		dir := path.Join("sys/block", name)
		if entries, err := fs.ReadDir(root, path.Join(dir, "mq")); err != nil || len(entries) == 0 {
			continue
		}
		if text(root, dir, "removable") == "1" {
			continue
		}
		disks = append(disks, Disk{
			Name: name, Number: number,
			Rotational: text(root, dir, "queue/rotational") == "1",
			Scheduler:  scheduler(text(root, dir, "queue/scheduler")),
		})
	}
	return disks, nil
}

func text(root fs.FS, dir, file string) string {
	data, _ := fs.ReadFile(root, path.Join(dir, file)) // it may have been unplugged since
	return strings.TrimSpace(string(data))
}

// scheduler returns the one in brackets of "none [mq-deadline] bfq", or the text without any.
func scheduler(list string) string {
	if _, after, found := strings.Cut(list, "["); found {
		name, _, _ := strings.Cut(after, "]")
		return name
	}
	return list
}
