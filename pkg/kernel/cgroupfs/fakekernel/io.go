package fakekernel

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// disks lists the whole block devices of the machine.
func disks() []string { return []string{"8:0", "8:16"} }

func (f Flavour) ioFiles(all map[string]file) {
	if f.IOPrio && f.V2 {
		all["io.prio.class"] = ioClass()
	} else if f.IOPrio {
		all["blkio.prio.class"] = ioClass()
	}
	if f.V2 {
		all["io.max"] = file{show: showMax, store: storeIOMax}
		if f.IOCost {
			all["io.weight"] = weightFile(usual, true, 1, 10000, true)
		}
		if f.BFQ {
			all["io.bfq.weight"] = weightFile(bfq, true, 1, 1000, false)
		}
		return
	}
	for i, name := range []string{"read_bps", "write_bps", "read_iops", "write_iops"} {
		all["blkio.throttle."+name+"_device"] = file{root: true, show: showThrottle(i), store: storeThrottle(i)}
	}
	if f.CFQ {
		all["blkio.weight"] = weightFile(usual, false, 10, 1000, false)
		all["blkio.weight_device"] = deviceWeights(usual, 10, 1000, false, syscall.ERANGE)
	} else {
		all["blkio.bfq.weight"] = weightFile(usual, false, 1, 1000, false)
		all["blkio.bfq.weight_device"] = deviceWeights(usual, 1, 1000, true, syscall.ERANGE)
	}
}

// ioClass implements ioprio_set_prio_policy, which returns EINVAL for all but a policy's name.
func ioClass() file {
	policies := []string{"no-change", "promote-to-rt", "restrict-to-be", "idle", "none-to-rt"}
	return file{
		root: true,
		show: func(g *group) string { return policies[g.ioPolicy] },
		store: func(g *group, text string) error {
			i := slices.Index(policies, strings.TrimSuffix(text, "\n"))
			if i < 0 {
				return syscall.EINVAL
			}
			g.ioPolicy = i
			return nil
		},
	}
}

// device splits the device off the front of a line. It returns EINVAL if the line names none, and
// ENODEV if the device is not a whole disk.
func device(line string) (dev, rest string, err error) {
	dev, rest, _ = strings.Cut(line, " ")
	if major, minor, ok := strings.Cut(dev, ":"); !ok || !digits(major) || !digits(minor) {
		return "", "", syscall.EINVAL
	}
	if !slices.Contains(disks(), dev) {
		return "", "", syscall.ENODEV
	}
	return dev, rest, nil
}

func digits(text string) bool {
	_, err := strconv.ParseUint(text, 10, 32)
	return err == nil
}

// lines joins the lines of all disks that have one.
func lines(line func(dev string) string) string {
	var all []string
	for _, dev := range disks() {
		if text := line(dev); text != "" {
			all = append(all, dev+" "+text)
		}
	}
	return strings.Join(all, "\n")
}

func showThrottle(i int) func(*group) string {
	return func(g *group) string {
		return lines(func(dev string) string {
			if n := g.throttling[dev][i]; n != 0 {
				return strconv.FormatUint(n, 10)
			}
			return ""
		})
	}
}

// storeThrottle implements tg_set_conf: 0 removes the limit, and operations per second are
// truncated to 32 bits.
func storeThrottle(i int) func(*group, string) error {
	return func(g *group, text string) error {
		dev, rest, err := device(text)
		if err != nil {
			return err
		}
		n, parse := strconv.ParseUint(strings.TrimSpace(rest), 10, 64)
		if parse != nil {
			return syscall.EINVAL
		}
		if i >= 2 {
			n = uint64(uint32(n))
		}
		if n == math.MaxUint64 || i >= 2 && n == math.MaxUint32 {
			n = 0
		}
		t := g.throttling[dev]
		t[i] = n
		g.throttling[dev] = t
		return nil
	}
}

func showMax(g *group) string {
	return lines(func(dev string) string {
		t := g.throttling[dev]
		if t == [4]uint64{} {
			return ""
		}
		var fields []string
		for i, key := range []string{"rbps", "wbps", "riops", "wiops"} {
			value := "max"
			if t[i] != 0 {
				value = strconv.FormatUint(t[i], 10)
			}
			fields = append(fields, key+"="+value)
		}
		return strings.Join(fields, " ")
	})
}

// storeIOMax implements tg_set_limit, which accepts one device per write.
func storeIOMax(g *group, text string) error {
	dev, rest, err := device(text)
	if err != nil {
		return err
	}
	t := g.throttling[dev]
	for field := range strings.FieldsSeq(rest) {
		key, value, _ := strings.Cut(field, "=")
		i := slices.Index([]string{"rbps", "wbps", "riops", "wiops"}, key)
		n, parse := strconv.ParseUint(value, 10, 64)
		switch {
		case i < 0, value != "max" && parse != nil:
			return syscall.EINVAL
		case value == "max", i >= 2 && n >= math.MaxUint32:
			n = 0
		case n == 0:
			return syscall.ERANGE
		}
		t[i] = n
	}
	g.throttling[dev] = t
	return nil
}

// ioWeights holds a cgroup's I/O weights.
type ioWeights struct {
	usual   int64
	devices map[string]int64
}

func usual(g *group) *ioWeights { return &g.weights }

func bfq(g *group) *ioWeights { return &g.bfqWeights }

// weightFile returns a file with a weight; with devices, it also has a line for each device.
// ioc_weight_write accepts "default" before the number, bfq_io_set_weight only the number. Out of
// range, the first returns EINVAL and the second ERANGE.
func weightFile(of func(*group) *ioWeights, devices bool, low, high int64, cost bool) file {
	beyond := syscall.ERANGE
	if cost {
		beyond = syscall.EINVAL
	}
	beside := deviceWeights(of, low, high, true, beyond)
	return file{
		show: func(g *group) string {
			if !devices {
				return strconv.FormatInt(of(g).usual, 10)
			}
			return beside.show(g)
		},
		store: func(g *group, text string) error {
			if cost {
				text = strings.TrimPrefix(text, "default ")
			}
			n, err := number(text)
			if err == nil {
				if n < low || n > high {
					return beyond
				}
				of(g).usual = n
				return nil
			}
			if !devices {
				return syscall.EINVAL
			}
			return beside.store(g, text)
		},
	}
}

func deviceWeights(of func(*group) *ioWeights, low, high int64, withUsual bool, beyond syscall.Errno) file {
	return file{
		show: func(g *group) string {
			text := lines(func(dev string) string {
				if n, ok := of(g).devices[dev]; ok {
					return strconv.FormatInt(n, 10)
				}
				return ""
			})
			if withUsual {
				text = strings.TrimSuffix("default "+strconv.FormatInt(of(g).usual, 10)+"\n"+text, "\n")
			}
			return text
		},
		store: func(g *group, text string) error {
			dev, rest, err := device(text)
			if err != nil {
				return err
			}
			if rest == "default" {
				delete(of(g).devices, dev)
				return nil
			}
			n, err := number(rest)
			if err != nil {
				return err
			}
			if n < low || n > high {
				return beyond
			}
			of(g).devices[dev] = n
			return nil
		},
	}
}
