package fake

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// place splits a path into the group, the monitoring group and the rest.
func place(name string) (group, watch, rest string) {
	name = path.Clean(name)
	if name == "." {
		return "", "", ""
	}
	first, more, _ := strings.Cut(name, "/")
	switch first {
	case "info", "schemata", "tasks", "mode", "mon_groups", "mon_data":
		group, more = "", name
	default:
		group = first
	}
	if below, ok := strings.CutPrefix(more, "mon_groups/"); ok {
		watch, more, _ = strings.Cut(below, "/")
	}
	return group, watch, more
}

// find returns the group of a path, or nil if it doesn't exist.
func (k *Kernel) find(name string) (g *group, watch, rest string) {
	in, watch, rest := place(name)
	g = k.groups[in]
	if g != nil && watch != "" && g.watches[watch] == nil {
		return nil, watch, rest
	}
	return g, watch, rest
}

// Read returns a file.
func (k *Kernel) Read(name string) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	g, watch, rest := k.find(name)
	if g == nil {
		return "", syscall.ENOENT
	}
	in, _, _ := place(name)
	switch counter, counted := strings.CutPrefix(rest, "mon_data/"); {
	case counted && watch != "":
		if text, ok := g.watches[watch][counter]; ok {
			return text + "\n", nil
		}
	case rest == "tasks":
		var text strings.Builder
		for _, tid := range slices.Sorted(maps.Keys(k.tasks)) {
			if t := k.tasks[tid]; t.group == in && (watch == "" || t.watch == watch) {
				fmt.Fprintln(&text, tid)
			}
		}
		return text.String(), nil
	case watch != "":
	case rest == "schemata":
		return k.show(g), nil
	case rest == "mode" && g.exclusive:
		return "exclusive\n", nil
	case rest == "mode":
		return "shareable\n", nil
	case rest == "info/last_cmd_status" && k.status == "":
		return "ok\n", nil
	case rest == "info/last_cmd_status":
		return k.status, nil
	case strings.HasPrefix(rest, "info/"):
		return k.showInfo(strings.TrimPrefix(rest, "info/"))
	}
	return "", syscall.ENOENT
}

func (k *Kernel) showInfo(name string) (string, error) {
	dir, file := path.Split(name)
	for _, s := range k.machine.schemas() {
		if s.name+"/" != dir {
			continue
		}
		files := map[string]string{"num_closids": strconv.Itoa(k.machine.CLOSIDs)}
		if c := s.cache; c != nil {
			files["cbm_mask"] = strconv.FormatUint(c.Mask, 16)
			files["min_cbm_bits"] = strconv.Itoa(c.MinBits)
			files["shareable_bits"] = strconv.FormatUint(c.Shareable, 16)
			files["sparse_masks"] = flag(c.Sparse)
		} else {
			files["min_bandwidth"] = strconv.FormatUint(s.bandwidth.Min, 10)
			files["bandwidth_gran"] = strconv.FormatUint(s.bandwidth.Gran, 10)
			files["delay_linear"] = flag(s.bandwidth.Linear)
		}
		if text, ok := files[file]; ok {
			return text + "\n", nil
		}
	}
	switch {
	case name == "L3_MON/num_rmids" && k.machine.RMIDs > 0:
		return strconv.Itoa(k.machine.RMIDs) + "\n", nil
	case name == "L3_MON/mon_features" && k.machine.RMIDs > 0:
		return strings.Join(k.machine.Events, "\n") + "\n", nil
	}
	return "", syscall.ENOENT
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// show pads the names of resources as the kernel does (show_doms).
func (k *Kernel) show(g *group) string {
	var text strings.Builder
	for _, s := range k.machine.schemas() {
		sep := fmt.Sprintf("%6s:", s.name)
		for _, id := range s.ids() {
			format := "%s%d=%4d"
			if s.cache != nil {
				format = "%s%d=%x"
			}
			fmt.Fprintf(&text, format, sep, id, g.values[s.name][id])
			sep = ";"
		}
		text.WriteByte('\n')
	}
	return text.String()
}

// Mkdir makes a control group, or a monitoring group if the path is in a folder mon_groups.
func (k *Kernel) Mkdir(name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	in, watch, rest := place(name)
	switch {
	case rest != "" || in == "" && watch == "":
		if g, _, _ := k.find(name); g != nil && (rest == "mon_groups" || rest == "info" || rest == "") {
			return syscall.EEXIST
		}
		return syscall.EPERM
	case watch != "":
		g := k.groups[in]
		if g == nil {
			return syscall.ENOENT
		}
		if g.watches[watch] != nil {
			return syscall.EEXIST
		}
		k.status = ""
		if err := k.rmid(); err != nil {
			return err
		}
		g.watches[watch] = map[string]string{}
		for _, id := range k.machine.L3.IDs {
			for _, event := range k.machine.Events {
				g.watches[watch][fmt.Sprintf("mon_L3_%02d/%s", id, event)] = "0"
			}
		}
		return nil
	case k.groups[in] != nil:
		return syscall.EEXIST
	}
	k.status = ""
	if len(k.groups) >= k.machine.CLOSIDs {
		k.status = "Out of CLOSIDs\n"
		return syscall.ENOSPC
	}
	if err := k.rmid(); err != nil {
		return err
	}
	g, err := k.begin()
	if err != nil {
		return err
	}
	k.groups[in] = g
	return nil
}

// rmid takes an RMID for a new group (alloc_rmid, fs/resctrl/monitor.c).
func (k *Kernel) rmid() error {
	used := k.limbo
	for _, g := range k.groups {
		used += 1 + len(g.watches)
	}
	if k.machine.RMIDs == 0 || used < k.machine.RMIDs {
		return nil
	}
	k.status = "Out of RMIDs\n"
	if k.limbo > 0 {
		return syscall.EBUSY
	}
	return syscall.ENOSPC
}

// begin returns a new group with what the kernel gives it: the ways that are shared or unused
// (__init_one_rdt_domain), and bandwidth without a limit.
func (k *Kernel) begin() (*group, error) {
	g := &group{values: map[string]map[int]uint64{}, watches: map[string]map[string]string{}}
	for _, s := range k.machine.schemas() {
		g.values[s.name] = map[int]uint64{}
		for _, id := range s.ids() {
			if s.cache == nil {
				g.values[s.name][id] = s.bandwidth.most()
				continue
			}
			mask := firstRun(s.cache.Mask&^k.taken(s, id, nil, true), s.cache.Sparse)
			if mask == 0 || ones(mask) < s.cache.MinBits {
				k.status = fmt.Sprintf("No space on %s:%d\n", s.name, id)
				return nil, syscall.ENOSPC
			}
			g.values[s.name][id] = mask
		}
	}
	return g, nil
}

// Rmdir removes a group; its threads move to its parent. As in the kernel, the status remains that
// of the previous command, because rdtgroup_rmdir doesn't clear it.
func (k *Kernel) Rmdir(name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	in, watch, rest := place(name)
	g := k.groups[in]
	switch {
	case g == nil || watch != "" && g.watches[watch] == nil:
		return syscall.ENOENT
	case rest != "" || in == "" && watch == "":
		return syscall.EPERM
	}
	for tid, t := range k.tasks {
		if t.group == in && watch != "" && t.watch == watch {
			k.tasks[tid] = task{group: in}
		} else if t.group == in && watch == "" {
			k.tasks[tid] = task{}
		}
	}
	freed := 1
	if watch != "" {
		delete(g.watches, watch)
	} else {
		freed += len(g.watches)
		delete(k.groups, in)
	}
	if k.dirty {
		k.limbo += freed
	}
	return nil
}

// List returns the entries of a folder, for the folders that the product reads.
func (k *Kernel) List(name string) ([]string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	g, watch, rest := k.find(name)
	if g == nil {
		return nil, syscall.ENOENT
	}
	switch {
	case rest == "mon_groups" && watch == "" && k.machine.RMIDs > 0:
		return slices.Sorted(maps.Keys(g.watches)), nil
	case watch != "" && (rest == "mon_data" || strings.HasPrefix(rest, "mon_data/")):
		below := strings.TrimPrefix(rest+"/", "mon_data/")
		var names []string
		for counter := range g.watches[watch] {
			if left, ok := strings.CutPrefix(counter, below); ok {
				first, _, _ := strings.Cut(left, "/")
				names = append(names, first)
			}
		}
		if names == nil {
			return nil, syscall.ENOENT
		}
		slices.Sort(names)
		return slices.Compact(names), nil
	case rest == "info":
		names := []string{"last_cmd_status"}
		for _, s := range k.machine.schemas() {
			names = append(names, s.name)
		}
		if k.machine.RMIDs > 0 {
			names = append(names, "L3_MON")
		}
		return names, nil
	case strings.HasPrefix(rest, "info/"):
		return k.listInfo(strings.TrimPrefix(rest, "info/"))
	case rest != "":
		return nil, syscall.ENOENT
	}
	names := []string{"tasks"}
	if watch == "" {
		names = append(names, "schemata", "mode")
	}
	if k.machine.RMIDs > 0 {
		names = append(names, "mon_data")
		if watch == "" {
			names = append(names, "mon_groups")
		}
	}
	if in, _, _ := place(name); in == "" && watch == "" {
		names = append(names, "info")
		names = append(names, slices.Sorted(maps.Keys(k.groups))[1:]...)
	}
	return names, nil
}

func (k *Kernel) listInfo(dir string) ([]string, error) {
	var names []string
	for _, file := range []string{
		"num_closids", "cbm_mask", "min_cbm_bits", "shareable_bits", "sparse_masks",
		"min_bandwidth", "bandwidth_gran", "delay_linear", "num_rmids", "mon_features",
	} {
		if _, err := k.showInfo(dir + "/" + file); err == nil {
			names = append(names, file)
		}
	}
	if names == nil {
		return nil, syscall.ENOENT
	}
	return names, nil
}

// Proc is the machine's /proc, with the lists of threads only.
type Proc struct{ *Kernel }

// List returns the threads in the folder "pid/task".
func (p Proc) List(name string) ([]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pid, _ := strconv.Atoi(path.Dir(name))
	tids, ok := p.procs[pid]
	if !ok {
		return nil, syscall.ENOENT
	}
	var names []string
	for _, tid := range tids {
		names = append(names, strconv.Itoa(tid))
	}
	return names, nil
}
