package iocost

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
)

func TestDisks(t *testing.T) {
	t.Parallel()
	root := fstest.MapFS{}
	disk := func(name, number string, files ...string) {
		for _, f := range append(files, "dev="+number) {
			file, text, _ := strings.Cut(f, "=")
			root["sys/block/"+name+"/"+file] = &fstest.MapFile{Data: []byte(text + "\n")}
		}
	}
	disk("sda", "8:0", "device/vendor", "mq/0/nr_tags", "removable=0", "queue/rotational=1", "queue/scheduler=none mq-deadline [bfq]")
	disk("nvme0n1", "259:0", "device/nsid", "mq/0/nr_tags", "removable=0", "queue/rotational=0", "queue/scheduler=[none] mq-deadline")
	disk("vda", "254:0", "device/vendor", "mq/0/nr_tags", "queue/scheduler=none")
	disk("sr0", "11:0", "device/vendor", "mq/0/nr_tags", "removable=1")
	disk("nvme1n1", "259:1", "device/nqn", "removable=0") // several paths: each has a queue, and is hidden
	disk("loop0", "7:0", "mq/0/nr_tags", "removable=0")
	disk("dm-0", "253:0", "dm/name")
	got, err := Disks(root)
	slices.SortFunc(got, func(a, b Disk) int { return cmp.Compare(a.Name, b.Name) })
	want := []Disk{{"nvme0n1", "259:0", false, "none"}, {"sda", "8:0", true, "bfq"}, {"vda", "254:0", false, "none"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if none, err := Disks(fstest.MapFS{}); err != nil || len(none) > 0 {
		t.Errorf("without /sys/block: %+v, %v", none, err)
	}
}

// cgroups imitates the kernel's io.cost.qos.
type cgroups struct {
	disks []string
	lines map[string]QoS
	lacks error
}

func (c *cgroups) IOCost() (string, error) {
	var text strings.Builder
	for _, number := range slices.Sorted(maps.Keys(c.lines)) {
		q := c.lines[number]
		if !q.User {
			fmt.Fprintf(&text, "%s enable=%d ctrl=auto rpct=0.00 rlat=25000 wpct=0.00 wlat=25000 min=1.00 max=10000.00\n", number, map[bool]int{true: 1}[q.Enabled])
			continue
		}
		text.WriteString(q.line(number) + "\n")
	}
	return text.String(), c.lacks
}

func (c *cgroups) SetIOCost(line string) error {
	written, err := parse(line)
	for number, q := range written {
		if !slices.Contains(c.disks, number) {
			return fmt.Errorf("%w: %w", cgroupfs.ErrNoDevice, syscall.ENODEV)
		}
		c.lines[number] = q
	}
	return err
}

func TestHost(t *testing.T) {
	t.Parallel()
	kernel := &cgroups{disks: []string{"8:0"}, lines: map[string]QoS{}}
	h, err := Open(kernel, fstest.MapFS{})
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []QoS{hdd, {User: true, Max: 100}, {}} {
		if err := h.Write(Write{"8:0", q}); err != nil {
			t.Error(err)
		}
		if got, err := h.Read(); err != nil || got["8:0"] != q || len(got) != 1 {
			t.Errorf("wrote %+v, read %+v, %v", q, got, err)
		}
	}
	if err := h.Write(Write{"8:16", hdd}); !errors.Is(err, ErrGone) || !errors.Is(err, syscall.ENODEV) {
		t.Errorf("a disk that is gone: %v", err)
	}
	if none, err := Open(&cgroups{lacks: cgroupfs.ErrUnsupported}, fstest.MapFS{}); none != nil || !errors.Is(err, cgroupfs.ErrUnsupported) {
		t.Errorf("without io.cost: %v, %v", none, err)
	}
}
