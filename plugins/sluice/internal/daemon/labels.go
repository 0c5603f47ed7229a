package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/doctor"
	"github.com/sluice-dev/sluice/pkg/kernel/coresched"
)

// These are the times of the file of labels. Its labels go by themselves some time after Sluice has gone.
const (
	labelsInterval = time.Hour
	labelsLast     = 24 * time.Hour
)

// errHidden says why a file of labels would have no effect.
var errHidden = errors.New("--labels-file: Node Feature Discovery ignores files whose name begins with a dot: choose another name, as sluice")

// CheckLabelsFile refuses a name with which the file would have no effect; "" is none.
func CheckLabelsFile(name string) error {
	if strings.HasPrefix(filepath.Base(name), ".") && name != "" {
		return errHidden
	}
	return nil
}

// keepLabels writes what the node has as labels for Node Feature Discovery, again and again until the context ends: also
// what changes, as resctrl that is mounted later. A file that cannot be written keeps nothing else up.
func (s *service) keepLabels(ctx context.Context, log logrus.FieldLogger) {
	tick := time.NewTicker(labelsInterval)
	defer tick.Stop()
	for {
		if err := s.writeLabels(time.Now()); err != nil {
			log.WithError(err).Warn("The labels for Node Feature Discovery can't be written: mount its folder features.d below --host-root, or leave --labels-file out")
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (s *service) writeLabels(now time.Time) error {
	root, err := filepath.Abs(s.HostRoot)
	if err != nil {
		return err
	}
	f := &doctor.Facts{Host: os.DirFS(root), Root: root, Features: s.features}
	if s.features != nil {
		f.CoreSched, _ = coresched.New().Supported()
	}
	return writeFeatureFile(s.LabelsFile, doctor.FeatureFile(doctor.Labels(f), now.Add(labelsLast)))
}

// writeFeatureFile replaces the file as a whole. Node Feature Discovery ignores hidden files, and reads as a user that
// is not root.
func writeFeatureFile(name, text string) error {
	next := filepath.Join(filepath.Dir(name), "."+filepath.Base(name)+".new")
	if err := os.WriteFile(next, []byte(text), 0o644); err != nil { //nolint:gosec // everybody may know what the kernel has
		return err
	}
	if err := os.Chmod(next, 0o644); err != nil { //nolint:gosec // the umask may have taken rights away
		return err
	}
	return os.Rename(next, name)
}
