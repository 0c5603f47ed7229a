package egress

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"github.com/sluice-dev/sluice/pkg/kernel/network"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// MarkFile is the usual name of a mark: the file that exists while pods may have limits. It says to how many bits per
// second each limit falls while no plugin runs, as a decimal number; 0 leaves the limits as they are.
const MarkFile = "egress"

// note writes the mark.
func (s *Shaper) note() error {
	floor := int64(0) // of an unknown link
	if s.found.Speed > 0 {
		floor = max(workload.LeastEgress, int64(s.found.Speed)*int64(s.found.FloorPercent)/100/int64(max(1, len(s.pods))))
	}
	text := strconv.FormatInt(floor, 10)
	if text == s.marked {
		return nil
	}
	err := os.WriteFile(s.mark+".new", []byte(text), 0o600)
	if err == nil {
		err = os.Rename(s.mark+".new", s.mark)
	}
	if err != nil {
		return fmt.Errorf("noting that pods have limits: %w", err)
	}
	s.marked = text
	return nil
}

// sweep ends the limits that an earlier process has set on pods that are not followed.
func (s *Shaper) sweep() {
	if _, err := os.Stat(s.mark); err != nil {
		return
	}
	var keep []network.ID
	for _, p := range s.pods {
		if p.network != nil {
			keep = append(keep, p.network.ID())
		}
	}
	if _, err := s.host.Release(keep, false); err == nil && len(keep) == 0 {
		os.Remove(s.mark) //nolint:errcheck // the next process looks once more
	}
}

// Restore ends all limits on what pods send, while no plugin runs, and returns how many pods had one. With dry
// it only counts them.
func Restore(host interface {
	Release(keep []network.ID, dry bool) (int, error)
}, mark string, dry bool) (pods int, err error) {
	if _, err := os.Stat(mark); errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if pods, err = host.Release(nil, dry); err != nil || dry {
		return pods, err
	}
	return pods, os.Remove(mark)
}

// Lower lowers the limits on what pods send to what the mark says, while no plugin runs, and returns how many pods had
// one.
func Lower(hostRoot, mark string) (pods int, err error) {
	text, err := os.ReadFile(mark)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	floor, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", mark, err)
	}
	if floor == 0 {
		return 0, nil
	}
	host, err := network.Open(hostRoot)
	if err != nil {
		return 0, err
	}
	return host.Lower(floor)
}
