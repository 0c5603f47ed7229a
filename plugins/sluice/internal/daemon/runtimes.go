package daemon

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/doctor"
	"github.com/sluice-dev/sluice/pkg/runtime/inspect"
)

// AskRuntimes asks the container runtimes below a host's root what they are, all at the
// same time, and no longer than inspect.Timeout.
func AskRuntimes(ctx context.Context, root string) map[string]*inspect.Facts {
	told := map[string]*inspect.Facts{}
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, socket := range doctor.RuntimeSockets() {
		path := filepath.Join(root, socket)
		if info, err := os.Stat(path); err != nil || info.Mode().Type() != fs.ModeSocket {
			continue
		}
		asking.Go(func() {
			facts := inspect.Ask(ctx, path)
			mu.Lock()
			defer mu.Unlock()
			told[socket] = facts
		})
	}
	asking.Wait()
	return told
}

// tellRuntimes logs once what the runtimes here tell of themselves. Nothing waits for it.
func tellRuntimes(ctx context.Context, root string, log logrus.FieldLogger) {
	for socket, told := range AskRuntimes(ctx, root) {
		log := log.WithField("socket", "/"+socket)
		if !told.Answered() {
			if len(told.Problems) > 0 && ctx.Err() == nil {
				log.WithError(told.Problems[0]).Warn("A container runtime does not tell what it is; sluice doctor looks at its files")
			}
			continue
		}
		log = log.WithFields(logrus.Fields{"runtime": told.Name, "version": told.Version, "from": told.From, "handlers": told.Handlers, "cgroupDriver": told.Driver})
		switch told.NRI.State {
		case inspect.Missing:
			log.Warn("Container runtime: it has not loaded NRI, without which Sluice reaches no container; sluice doctor tells what to do")
		case inspect.Broken:
			log.WithField("problem", told.NRI.Why).Warn("Container runtime: its NRI plugin has failed, without which Sluice reaches no container; sluice doctor tells what to do")
		default:
			log.Info("Container runtime")
		}
	}
}
