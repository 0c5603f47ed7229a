package config

import (
	"cmp"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/kernel/iocost"
)

// IOCost lets disks without the scheduler bfq divide their time by I/O weights.
type IOCost struct {
	Mode  IOCostMode   `yaml:"mode"`  // On enables the kernel's io.cost on disks, so that I/O weights have an effect there.
	Disks []IOCostDisk `yaml:"disks"` // Which disks, and how: the first entry that fits a disk counts. Without any, all disks.
}

// IOCostMode is IOCostOn, or IOCostOff: disks are left as they are.
type IOCostMode string

// These modes of io.cost are supported.
const (
	IOCostOn  IOCostMode = "on"
	IOCostOff IOCostMode = "off"
)

// UnmarshalText reads "on" or "off".
func (m *IOCostMode) UnmarshalText(text []byte) error { return choose(m, text, IOCostOn, IOCostOff) }

// IOCostDisk says when the kernel takes a disk for saturated, and how far it then slows it down.
// What is 0 is by the kind of disk: see iocost.Default.
type IOCostDisk struct {
	Name            string        `yaml:"name"`            // Name in /sys/block, as a pattern such as nvme*.
	ReadLatency     time.Duration `yaml:"readLatency"`     // Longest time of a read while the disk is not saturated. Default: 25ms, of a rotating disk 250ms.
	ReadPercentile  int           `yaml:"readPercentile"`  // Percentage of the reads that must take no longer than readLatency. Default: 95.
	WriteLatency    time.Duration `yaml:"writeLatency"`    // Longest time of a write while the disk is not saturated. Default: 25ms, of a rotating disk 250ms.
	WritePercentile int           `yaml:"writePercentile"` // Percentage of the writes that must take no longer than writeLatency. Default: 95.
	MinPercent      int           `yaml:"minPercent"`      // Least rate of a saturated disk, in percent of the kernel's model of it. Default: 25.
	MaxPercent      int           `yaml:"maxPercent"`      // Highest rate of the disk, in percent of the kernel's model of it. Default: 10000.
}

// QoS returns the parameters that a disk should have. It returns false for a disk that is left
// alone.
func (c *IOCost) QoS(d iocost.Disk) (iocost.QoS, bool) {
	if c.Mode != IOCostOn || d.ByWeight() {
		return iocost.QoS{}, false
	}
	for i := range c.Disks {
		if fits, err := path.Match(c.Disks[i].Name, d.Name); fits && err == nil {
			return c.Disks[i].qos(d.Rotational), true
		}
	}
	return iocost.Default(d.Rotational), len(c.Disks) == 0
}

func (d *IOCostDisk) qos(rotational bool) iocost.QoS {
	const percent = 100 // hundredths
	q := iocost.Default(rotational)
	q.ReadLatency = cmp.Or(d.ReadLatency.Microseconds(), q.ReadLatency)
	q.WriteLatency = cmp.Or(d.WriteLatency.Microseconds(), q.WriteLatency)
	q.ReadPercent = cmp.Or(percent*iocost.Percent(d.ReadPercentile), q.ReadPercent)
	q.WritePercent = cmp.Or(percent*iocost.Percent(d.WritePercentile), q.WritePercent)
	q.Min = cmp.Or(percent*iocost.Percent(d.MinPercent), q.Min)
	q.Max = cmp.Or(percent*iocost.Percent(d.MaxPercent), q.Max)
	return q
}

func (d *decoder) checkIOCost(c *IOCost) {
	for i := range c.Disks {
		disk := &c.Disks[i]
		at := fmt.Sprintf("ioCost.disks[%d]", i)
		if disk.Name == "" {
			d.fail(at, `is for no disk; give it a name, for all disks name: "*"`)
		}
		if strings.Contains(disk.Name, "/") {
			d.fail(at+".name", "%s: must be a name in /sys/block, such as nvme0n1", quote(disk.Name))
		}
		d.glob(at+".name", disk.Name)
		d.latency(at+".readLatency", disk.ReadLatency)
		d.latency(at+".writeLatency", disk.WriteLatency)
		d.optional(at+".readPercentile", disk.ReadPercentile, 50, 99)
		d.optional(at+".writePercentile", disk.WritePercentile, 50, 99)
		d.optional(at+".minPercent", disk.MinPercent, 1, 10000)
		d.optional(at+".maxPercent", disk.MaxPercent, 1, 10000)
		if q := disk.qos(false); q.Min > q.Max {
			d.fail(at+".maxPercent", "%d: must be at least minPercent, which is %d", q.Max/100, q.Min/100)
		}
	}
}

func (d *decoder) latency(key string, value time.Duration) {
	if value != 0 {
		d.between(key, value, 100*time.Microsecond, 10*time.Second)
	}
}

func (d *decoder) optional(key string, value, least, most int) {
	if value != 0 && (value < least || value > most) {
		d.fail(key, "%d: must be %d to %d", value, least, most)
	}
}
