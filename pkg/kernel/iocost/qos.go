// Package iocost lets disks divide their time by the I/O weights of cgroups (the kernel's io.cost),
// and restores what it found. It separates the decision which parameters each disk should have from
// reading and writing. Only this package decides the lines of the root cgroup's io.cost.qos.
// io.cost.model, the cost of each operation, is left to the kernel and the administrator.
package iocost

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// QoS is a disk's line of io.cost.qos (ioc_qos_write in block/blk-iocost.c and "IO Interface Files"
// in the kernel's Documentation/admin-guide/cgroup-v2.rst). The kernel takes a disk for saturated
// when fewer operations than the percentile keep to the latency, or when operations wait for a free
// request. It then lowers the rate at which all cgroups together may begin operations, in percent
// of the rate of the cost model, and raises it again when nothing is missed and somebody waits.
//
// The zero value is a disk on which io.cost was never enabled.
type QoS struct {
	Enabled bool `json:"enabled,omitempty"`
	// User is set if somebody has chosen the parameters. Otherwise the kernel chooses and may change
	// them, and those below are 0.
	User         bool    `json:"user,omitempty"`
	ReadPercent  Percent `json:"readPercent,omitempty"` // percentile; 0 ignores the latency
	ReadLatency  int64   `json:"readLatency,omitempty"` // µs, beyond what an operation of its size takes by the model
	WritePercent Percent `json:"writePercent,omitempty"`
	WriteLatency int64   `json:"writeLatency,omitempty"`
	Min          Percent `json:"min,omitempty"` // bounds of the rate; the kernel's are 1 and 10000
	Max          Percent `json:"max,omitempty"`
}

// Percent is a percentage with two decimals, in hundredths.
type Percent int64

func (p Percent) String() string { return fmt.Sprintf("%d.%02d", p/100, p%100) }

func parsePercent(text string) (Percent, error) {
	whole, decimals, _ := strings.Cut(text, ".")
	n, err := strconv.ParseUint(whole+(decimals + "00")[:2], 10, 32)
	if err != nil || whole == "" || len(decimals) > 2 {
		return 0, fmt.Errorf("%.40q is no percentage", text)
	}
	return Percent(n), nil
}

// Default returns the parameters for a kind of disk. Both latencies are those of the kernel's own
// table (autop in block/blk-iocost.c), which it does not enforce by itself, and the percentile is
// that of the kernel's documentation. The least rate keeps a disk whose latency is missed for other
// reasons usable: with the kernel's model it is 122 MB/s and 2,100 random reads a second for an SSD,
// and 43 MB/s and 92 for a rotating disk. resctl-bench goes no lower than 125 MiB/s and 280
// (ABS_MIN_IO_PERF). The rate has no upper bound, because the model of an SSD is far too slow for
// many.
func Default(rotational bool) QoS {
	latency := 25 * time.Millisecond
	if rotational {
		latency = 250 * time.Millisecond
	}
	return QoS{
		Enabled: true, User: true,
		ReadPercent: 95_00, ReadLatency: latency.Microseconds(),
		WritePercent: 95_00, WriteLatency: latency.Microseconds(),
		Min: 25_00, Max: 10000_00,
	}
}

// parse reads the lines of io.cost.qos, by the disks' numbers:
// "8:16 enable=1 ctrl=user rpct=95.00 rlat=75000 wpct=95.00 wlat=150000 min=50.00 max=150.00".
func parse(text string) (map[string]QoS, error) {
	all := map[string]QoS{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		var q QoS
		for _, field := range fields[1:] {
			if err := q.set(field); err != nil {
				return nil, fmt.Errorf("io.cost.qos has the line %.200q: %w", line, err)
			}
		}
		if !q.User {
			q = QoS{Enabled: q.Enabled}
		}
		all[fields[0]] = q
	}
	return all, nil
}

func (q *QoS) set(field string) (err error) {
	key, value, _ := strings.Cut(field, "=")
	switch key {
	case "enable":
		q.Enabled = value != "0"
	case "ctrl":
		q.User = value == "user"
	case "rpct":
		q.ReadPercent, err = parsePercent(value)
	case "wpct":
		q.WritePercent, err = parsePercent(value)
	case "min":
		q.Min, err = parsePercent(value)
	case "max":
		q.Max, err = parsePercent(value)
	case "rlat":
		q.ReadLatency, err = strconv.ParseInt(value, 10, 64)
	case "wlat":
		q.WriteLatency, err = strconv.ParseInt(value, 10, 64)
	}
	return err
}

// line returns what to write for a disk. A parameter makes the kernel set ctrl=user, so that none is
// there with ctrl=auto.
func (q QoS) line(number string) string {
	enable := 0
	if q.Enabled {
		enable = 1
	}
	if !q.User {
		return fmt.Sprintf("%s enable=%d ctrl=auto", number, enable)
	}
	return fmt.Sprintf("%s enable=%d ctrl=user rpct=%s rlat=%d wpct=%s wlat=%d min=%s max=%s",
		number, enable, q.ReadPercent, q.ReadLatency, q.WritePercent, q.WriteLatency, q.Min, q.Max)
}
