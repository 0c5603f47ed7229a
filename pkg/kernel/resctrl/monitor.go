package resctrl

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/intel/goresctrl/pkg/monitor"

	"github.com/sluice-dev/sluice/pkg/observe"
)

const (
	monGroups   = "mon_groups"
	watchPrefix = prefix // prefix of monitoring groups; runc names its own by the container's ID alone
)

// monitors is the part of goresctrl's monitor.Manager that manages monitoring groups and reads
// their counters. Its AssignPID is not used: it moves one thread and reads the threads of every
// group for that, and it expects the kernel to move a task to another control group through its
// monitoring group, which the kernel refuses.
type monitors interface {
	EnsureGroup(key, class string) (*monitor.Group, error)
	ReadCounters(key string) ([]monitor.Reading, error)
	Remove(key string) error
	Reconcile(live []string) error // keeps the groups that List returns
	List() []string
}

func newMonitors(root string) (monitors, error) {
	monitor.SetLogger(slog.New(slog.DiscardHandler)) // errors are returned, too
	return monitor.New(monitor.Options{ResctrlRoot: root, KeyValidator: func(key string) bool {
		return strings.HasPrefix(key, watchPrefix) && monitor.DefaultKeyValidator(key)
	}})
}

// Watch makes a container's monitoring group in a control group if there is none yet. The caller
// then assigns the container to it. Call Unwatch before a container changes its control group; its
// counters then start again from 0.
func (h *Host) Watch(group, container string) error {
	if h.monitors == nil || h.info.RMIDs == 0 {
		return fmt.Errorf("watching container %s: %w: this machine's resctrl doesn't count", container, errors.ErrUnsupported)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := h.monitors.EnsureGroup(watchPrefix+container, group)
	if errors.Is(err, monitor.ErrNoRMIDs) && !errors.Is(err, syscall.EBUSY) {
		return &Error{Group: group, Action: "watching container " + container, Kind: ErrNoRMID, Err: syscall.ENOSPC}
	}
	return h.refused(group, "watching container "+container, err)
}

// Usage returns the counters of a watched container by cache id, or none for other containers.
// Bandwidth is the difference of two readings; a counter that fell has started again from 0.
func (h *Host) Usage(container string) ([]observe.L3, error) {
	if h.monitors == nil {
		return nil, nil
	}
	readings, err := h.monitors.ReadCounters(watchPrefix + container)
	if errors.Is(err, monitor.ErrNotTracked) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading what container %s uses: %w", container, err)
	}
	var all []observe.L3
	for _, r := range readings { // sorted by folder, and therefore by cache id
		digits, ok := strings.CutPrefix(r.Domain, "mon_L3_")
		id, err := strconv.Atoi(digits)
		if !ok || err != nil {
			continue
		}
		if len(all) == 0 || all[len(all)-1].ID != id {
			all = append(all, observe.L3{ID: id, OccupancyBytes: -1, TotalBytes: -1, LocalBytes: -1})
		}
		u := &all[len(all)-1]
		switch r.Name {
		case "llc_occupancy":
			u.OccupancyBytes = int64(r.Value)
		case "mbm_total_bytes":
			u.TotalBytes = int64(r.Value)
		case "mbm_local_bytes":
			u.LocalBytes = int64(r.Value)
		}
	}
	return all, nil
}

// Unwatch removes a container's monitoring group; its threads stay in the control group. A missing
// group is no error.
func (h *Host) Unwatch(container string) error {
	if h.monitors == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.monitors.Remove(watchPrefix + container); err != nil && !errors.Is(err, monitor.ErrNotTracked) {
		return failed("", "unwatching container "+container, err)
	}
	return nil
}

// PruneWatches removes the monitoring groups of all containers that are not in the list, in every
// control group.
func (h *Host) PruneWatches(live []string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pruneWatches(live)
}

func (h *Host) pruneWatches(live []string) error {
	if h.monitors == nil {
		return nil
	}
	keys := make([]string, len(live))
	for i, container := range live {
		keys[i] = watchPrefix + container
	}
	var errs []error
	for _, key := range h.monitors.List() {
		if !slices.Contains(keys, key) {
			errs = append(errs, h.monitors.Remove(key))
		}
	}
	return errors.Join(append(errs, h.monitors.Reconcile(keys))...)
}
