// Package newidle lets a CPU that has nothing left to run always look for threads that wait on other
// CPUs. No other package touches the scheduler's features in debugfs.
//
// Since Linux 6.19 ("sched/fair: Proportional newidle balance"), and in stable kernels such as 6.1.192
// and 6.12.117, a CPU looks with a probability that is the share of the last 1024 searches that found
// a thread (sched_balance_newidle, kernel/sched/fair.c). On a node that has idled this share is near
// zero, and it takes a thousand searches to learn otherwise. Threads of the idle class often gather on
// one CPU, so that beside them the other idles for milliseconds. NI_RATE, which came later, raises the
// probability where CPUs seldom run out of work.
package newidle

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// File is where the kernel lists its scheduler's features, and takes a name to enable one, or NO_ and
// the name to disable it: Linux 5.13, up to 6.14 with CONFIG_SCHED_DEBUG.
const File = "sys/kernel/debug/sched/features"

const (
	random = "NI_RANDOM"
	rate   = "NI_RATE"
	no     = "NO_"
)

// Search says when a CPU that has nothing left to run looks for waiting threads.
type Search string

// These are all searches.
const (
	Always    Search = "always"    // each time: the feature is disabled
	Plain     Search = "plain"     // each time: this kernel has no such feature
	Rated     Search = "rated"     // with a probability that is high where CPUs seldom run out of work
	Sometimes Search = "sometimes" // with the probability of success alone
)

// Host reads and writes the feature of the machine below a root folder.
type Host struct {
	root *os.Root
}

// Open opens the folder that holds the host's /sys. It keeps a handle, so that no symbolic link leads
// outside.
func Open(hostRoot string) (*Host, error) {
	root, err := os.OpenRoot(hostRoot)
	if err != nil {
		return nil, fmt.Errorf("the scheduler's features: %w", err)
	}
	return &Host{root}, nil
}

// Close closes the handle.
func (h *Host) Close() error { return h.root.Close() }

// Read returns what is in force. The error says why it can't be known, and what to do.
func (h *Host) Read() (Search, error) {
	text, err := h.root.ReadFile(File)
	if err != nil {
		return "", explain(err)
	}
	return parse(string(text)), nil
}

// parse reads the list of features, in which a disabled one has the prefix NO_.
func parse(list string) Search {
	features := strings.Fields(list)
	switch {
	case slices.Contains(features, no+random):
		return Always
	case !slices.Contains(features, random):
		return Plain
	case slices.Contains(features, rate):
		return Rated
	}
	return Sometimes
}

// SetAlways disables the feature, so that CPUs look each time, or enables it again. It must not be
// called where Read returns Plain: the kernel refuses names that it does not know (EINVAL).
func (h *Host) SetAlways(always bool) error {
	name := random
	if always {
		name = no + random
	}
	f, err := h.root.OpenFile(File, os.O_WRONLY, 0)
	if err != nil {
		return explain(err)
	}
	if _, err = f.WriteString(name); err == nil {
		return f.Close()
	}
	return errors.Join(fmt.Errorf("%s to /%s: %w", name, File, err), f.Close())
}

func explain(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("/%s is not there: mount -t debugfs none /sys/kernel/debug, unless the kernel is older than 5.13 or has no CONFIG_SCHED_DEBUG", File)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: run Sluice as root, on a kernel that is not locked down (lockdown=none, without Secure Boot)", err)
	}
	return err
}
