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

// AskRuntimes queries the container runtimes below a host's root for their versions and
// settings, concurrently, and for at most inspect.Timeout.
func AskRuntimes(ctx context.Context, root string) map[string]*inspect.Facts {
	answers := map[string]*inspect.Facts{}
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
			answers[socket] = facts
		})
	}
	asking.Wait()
	return answers
}

// logRuntimes logs the answers of the runtimes once. Nothing waits for it.
func logRuntimes(ctx context.Context, root string, log logrus.FieldLogger) {
	for socket, facts := range AskRuntimes(ctx, root) {
		log := log.WithField("socket", "/"+socket)
		if !facts.Answered() {
			if len(facts.Problems) > 0 && ctx.Err() == nil {
				log.WithError(facts.Problems[0]).Warn("A container runtime does not tell what it is; sluice doctor looks at its files")
			}
			continue
		}
		log = log.WithFields(logrus.Fields{"runtime": facts.Name, "version": facts.Version, "from": facts.From, "handlers": facts.Handlers, "cgroupDriver": facts.Driver})
		switch facts.NRI.State {
		case inspect.Missing:
			log.Warn("Container runtime: it has not loaded NRI, without which Sluice reaches no container; sluice doctor tells what to do")
		case inspect.Broken:
			log.WithField("problem", facts.NRI.Why).Warn("Container runtime: its NRI plugin has failed, without which Sluice reaches no container; sluice doctor tells what to do")
		default:
			log.Info("Container runtime")
		}
	}
}
