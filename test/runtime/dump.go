package runtime

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/test/host"
)

// Dump holds the text of every file that can be set, by its path.
type Dump map[string]string

// Dump reads every file that can be set in the runtime's cgroups and in those above, up to the
// root; the OOM scores of the pods' processes; and the sysctls that Sluice knows.
func (rt *Runtime) Dump() (Dump, error) {
	d := Dump{}
	for _, m := range rt.tree.Mounts {
		for dir := filepath.Dir(rt.tree.Name); ; dir = filepath.Dir(dir) {
			if err := d.folder(m, dir); err != nil {
				return nil, err
			}
			if dir == "." {
				break
			}
		}
		if err := d.below(m, rt.tree.Name); err != nil {
			return nil, err
		}
		if rt.options.Systemd { // the pods' cgroups are not below the runtime's
			if err := d.below(m, rt.kubepods()); err != nil {
				return nil, err
			}
		}
	}
	pids, err := rt.tree.PIDs(rt.kubepods())
	if err != nil {
		return nil, err
	}
	for _, pid := range pids {
		d.file(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
	}
	d.file("/proc/sys/vm/watermark_scale_factor")
	d.file("/proc/sys/vm/min_free_kbytes")
	return d, nil
}

// ClassSettings reads every file that can be set in kubepods and in its QoS classes' cgroups,
// without the pods.
func (rt *Runtime) ClassSettings() (Dump, error) {
	d := Dump{}
	for _, m := range rt.tree.Mounts {
		for _, dir := range []string{rt.kubepods(), rt.class("burstable"), rt.class("besteffort")} {
			if err := d.folder(m, dir); err != nil && !host.Gone(err) {
				return nil, err
			}
		}
	}
	return d, nil
}

// Settings reads every cgroup file below kubepods that can be set.
func (rt *Runtime) Settings() (Dump, error) { return settings(&rt.tree, rt.kubepods()) }

// Settings reads every file that can be set in the pod's own cgroup and in those below it.
func (p *Pod) Settings() (Dump, error) { return settings(&p.rt.tree, p.Cgroup) }

func settings(t *host.Tree, cgroup string) (Dump, error) {
	d := Dump{}
	for _, m := range t.Mounts {
		if err := d.below(m, cgroup); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// Changed lists the files that are in both dumps with different texts.
func (d Dump) Changed(other Dump) []string {
	var files []string
	for file, text := range d {
		if was, there := other[file]; there && was != text {
			files = append(files, file)
		}
	}
	slices.Sort(files)
	return files
}

// Differences lists the files whose text differs in a later dump.
func (d Dump) Differences(later Dump) []string {
	var all []string
	for file, was := range d {
		if is, there := later[file]; !there {
			all = append(all, fmt.Sprintf("%s: %q is gone", file, was))
		} else if is != was {
			all = append(all, fmt.Sprintf("%s: %q became %q", file, was, is))
		}
	}
	for file, is := range later {
		if _, there := d[file]; !there {
			all = append(all, fmt.Sprintf("%s: new, %q", file, is))
		}
	}
	slices.Sort(all)
	return all
}

func (d Dump) below(m host.Mount, cgroup string) error {
	for _, dir := range host.Below(m.Path(cgroup)) {
		relative, err := filepath.Rel(m.Dir, dir)
		if err != nil {
			return err
		}
		if err := d.folder(m, relative); err != nil {
			return err
		}
	}
	return nil
}

// folder reads the files of one cgroup.
func (d Dump) folder(m host.Mount, cgroup string) error {
	files, err := os.ReadDir(m.Path(cgroup))
	if err != nil {
		return err
	}
	for _, file := range files {
		info, err := file.Info()
		if err != nil || !isSetting(info) {
			continue
		}
		path := m.Path(cgroup, file.Name())
		// v2 accepts no empty set for a cgroup that has had one, so the effective set counts.
		if m.V2 && (file.Name() == "cpuset.cpus" || file.Name() == "cpuset.mems") {
			path += ".effective"
		}
		d.file(path)
	}
	return nil
}

// file reads a file, unless it can't be read here (kmem, rt).
func (d Dump) file(path string) {
	if text, err := os.ReadFile(path); err == nil {
		d[path] = strings.TrimSpace(string(text))
	}
}

// isSetting distinguishes files that hold a setting from those that a write resets, and from lists
// of members.
func isSetting(file fs.FileInfo) bool {
	if file.IsDir() || file.Mode()&0o600 != 0o600 {
		return false
	}
	for _, counts := range []string{"usage", "failcnt", "peak", "pressure", "procs", "tasks", "threads", "reset"} {
		if strings.Contains(file.Name(), counts) {
			return false
		}
	}
	return true
}
