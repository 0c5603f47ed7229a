package procfs

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Load returns the mean number of tasks over the last minute that ran, waited for a CPU or were
// in uninterruptible sleep (/proc/loadavg).
func (f *FS) Load() (tasks float64, err error) {
	text, err := f.read(&f.loadavg, nil)
	if err != nil {
		return 0, err
	}
	return parseLoad(text)
}

func parseLoad(text []byte) (float64, error) {
	whole, rest := number(text)
	tasks := float64(whole)
	if len(rest) < 3 || rest[0] != '.' || len(text) == len(rest) {
		return 0, errors.New("/proc/loadavg doesn't begin with a number of tasks")
	}
	hundredths, _ := number(rest[1:3])
	return tasks + float64(hundredths)/100, nil
}

// podFolders are the folders, below the root, in which runtimes and the kubelet keep pods'
// data.
var podFolders = [...]string{"var/lib/kubelet", "var/lib/containerd", "var/lib/containers", "var/log"}

// Disk returns how full the fullest file system with pods' data is, 0 to 1. Like df, it counts
// the space that unprivileged users may use.
func (f *FS) Disk() (used float64, err error) {
	err = ErrUnsupported
	for _, folder := range f.disks {
		var s unix.Statfs_t
		if unix.Fstatfs(int(folder.Fd()), &s) != nil {
			continue
		}
		if of := s.Blocks - s.Bfree + s.Bavail; of > 0 {
			used, err = max(used, float64(s.Blocks-s.Bfree)/float64(of)), nil
		}
	}
	return used, err
}

// findDisks reopens the folders, because another file system may have been mounted there.
func (f *FS) findDisks() {
	f.forgetDisks()
	for _, name := range podFolders {
		if folder, err := f.root.Open(name); err == nil {
			f.disks = append(f.disks, folder)
		}
	}
}

func (f *FS) forgetDisks() {
	for _, folder := range f.disks {
		folder.Close()
	}
	f.disks = f.disks[:0]
}
