package fake

import (
	"fmt"
	"io"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Write writes a file.
func (k *Kernel) Write(name, text string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	g, watch, rest := k.find(name)
	if g == nil {
		return syscall.ENOENT
	}
	in, _, _ := place(name)
	switch {
	case rest == "tasks":
		k.status = ""
		return k.move(in, watch, text)
	case watch != "":
		return syscall.ENOENT
	case rest == "schemata":
		k.writes = append(k.writes, in+": "+text)
		return k.schemata(g, text)
	case rest == "mode":
		return k.mode(g, text)
	case strings.HasPrefix(rest, "info/"):
		return syscall.EACCES
	}
	return syscall.ENOENT
}

// move implements rdtgroup_tasks_write of kernels before 6.7, which accept one thread per write.
func (k *Kernel) move(in, watch, text string) error {
	tid, err := strconv.Atoi(strings.TrimSpace(text))
	switch {
	case err != nil:
		k.status = "Task list parsing error pid " + text + "\n"
		return syscall.EINVAL
	case tid < 0:
		k.status = fmt.Sprintf("Invalid pid %d\n", tid)
		return syscall.EINVAL
	}
	t, ok := k.tasks[tid]
	switch {
	case !ok:
		k.status = fmt.Sprintf("No task %d\nError while processing task %d\n", tid, tid)
		return syscall.ESRCH
	case watch != "" && t.group != in:
		k.status = fmt.Sprintf("Can't move task to different control group\nError while processing task %d\n", tid)
		return syscall.EINVAL
	}
	k.tasks[tid] = task{group: in, watch: watch}
	return nil
}

// schemata implements rdtgroup_schemata_write: nothing applies unless all lines are valid, except
// with mba_MBps, where each value applies as soon as it is parsed.
func (k *Kernel) schemata(g *group, text string) error {
	if !strings.HasSuffix(text, "\n") {
		return syscall.EINVAL // the status remains that of the previous command
	}
	k.status = ""
	staged := map[string]map[int]uint64{}
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		name, list, ok := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		switch {
		case !ok:
			k.status = "Missing ':'\n"
			return syscall.EINVAL
		case list == "":
			k.status = fmt.Sprintf("Missing '%s' value\n", name)
			return syscall.EINVAL
		}
		schemas := k.machine.schemas()
		i := slices.IndexFunc(schemas, func(s schema) bool { return s.name == name })
		if i < 0 {
			k.status = fmt.Sprintf("Unknown or unsupported resource name '%s'\n", name)
			return syscall.EINVAL
		}
		if staged[name] == nil {
			staged[name] = map[int]uint64{}
		}
		if !k.line(g, schemas[i], list, staged[name]) {
			return syscall.EINVAL
		}
	}
	for name, values := range staged {
		maps.Copy(g.values[name], values)
	}
	return nil
}

func (k *Kernel) line(g *group, s schema, list string, staged map[int]uint64) bool {
	for item := range strings.SplitSeq(list, ";") {
		if item == "" {
			break
		}
		text, value, ok := strings.Cut(item, "=")
		id, err := strconv.Atoi(text)
		if !ok || err != nil {
			k.status = "Missing '=' or non-numeric domain\n"
			return false
		}
		if !slices.Contains(s.ids(), id) {
			return false // without a text in the status
		}
		if _, twice := staged[id]; twice {
			k.status = fmt.Sprintf("Duplicate domain %d\n", id)
			return false
		}
		check := k.bandwidth
		if s.cache != nil {
			check = k.mask
		}
		v, ok := check(g, s, id, strings.TrimSpace(value))
		if !ok {
			return false
		}
		if s.bandwidth != nil && s.bandwidth.MBps {
			g.values[s.name][id] = v
			continue
		}
		staged[id] = v
	}
	return true
}

// bandwidth implements bw_validate.
func (k *Kernel) bandwidth(_ *group, s schema, _ int, text string) (uint64, bool) {
	b := s.bandwidth
	v, err := strconv.ParseUint(text, 10, 32)
	switch {
	case err != nil:
		k.status = "Invalid MB value " + text + "\n"
		return 0, false
	case b.MBps:
		return v, true
	case v < b.Min || v > b.Max:
		k.status = fmt.Sprintf("MB value %d out of range [%d,%d]\n", v, b.Min, b.Max)
		return 0, false
	}
	return (v + b.Gran - 1) / b.Gran * b.Gran, true
}

// mask implements cbm_validate, and the other checks of parse_cbm.
func (k *Kernel) mask(g *group, s schema, id int, text string) (uint64, bool) {
	c := s.cache
	v, err := strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 64)
	switch {
	case err != nil:
		k.status = "Non-hex character in the mask " + text + "\n"
	case c.MinBits > 0 && v == 0 || v > c.Mask:
		k.status = "Mask out of range\n"
	case !c.Sparse && firstRun(v, false) != v:
		k.status = fmt.Sprintf("The mask %x has non-consecutive 1-bits\n", v)
	case ones(firstRun(v, false)) < c.MinBits:
		k.status = fmt.Sprintf("Need at least %d bits in the mask\n", c.MinBits)
	case v&k.taken(s, id, g, true) != 0:
		k.status = "Overlaps with exclusive group\n"
	case g.exclusive && v&(c.Shareable|k.taken(s, id, g, false)) != 0:
		k.status = "Overlaps with other group\n"
	default:
		return v, true
	}
	return 0, false
}

// taken returns the ways that other groups have, or only exclusive ones. With code and data
// prioritization the masks of both count.
func (k *Kernel) taken(s schema, id int, but *group, exclusive bool) uint64 {
	var mask uint64
	for _, g := range k.groups {
		if g == but || exclusive && !g.exclusive {
			continue
		}
		for _, other := range k.machine.schemas() {
			if other.cache == s.cache {
				mask |= g.values[other.name][id]
			}
		}
	}
	return mask
}

// mode implements rdtgroup_mode_write.
func (k *Kernel) mode(g *group, text string) error {
	k.status = ""
	switch text {
	case "shareable\n":
		g.exclusive = false
		return nil
	case "exclusive\n":
		for _, s := range k.machine.schemas() {
			for _, id := range s.ids() {
				if s.cache != nil && g.values[s.name][id]&(s.cache.Shareable|k.taken(s, id, g, false)) != 0 {
					k.status = "Schemata overlaps\n"
					return syscall.EINVAL
				}
			}
		}
		g.exclusive = true
		return nil
	}
	k.status = "Unknown or unsupported mode\n"
	return syscall.EINVAL
}

// firstRun returns the lowest run of adjacent ones, or the whole mask if gaps are allowed.
func firstRun(mask uint64, sparse bool) uint64 {
	if mask == 0 || sparse {
		return mask
	}
	low := bits.TrailingZeros64(mask)
	return (1<<bits.TrailingZeros64(^(mask>>low)) - 1) << low
}

func ones(mask uint64) int { return bits.OnesCount64(mask) }

// Writer opens a file for writing.
func (k *Kernel) Writer(name string) (io.WriteCloser, error) {
	_, err := k.Read(name)
	return file{k, name}, err
}

// file is an open file.
type file struct {
	in   *Kernel
	name string
}

func (f file) Write(text []byte) (int, error) {
	if err := f.in.Write(f.name, string(text)); err != nil {
		return 0, err
	}
	return len(text), nil
}

func (f file) Close() error { return nil }
