package live

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/pkg/view/statusapi"
	"github.com/sluice-dev/sluice/pkg/view/top"
	"github.com/sluice-dev/sluice/topology"
)

// Source provides what the view shows.
type Source interface {
	Look(context.Context) (top.Seen, error)
}

// patience limits the time of one reading.
const patience = 3 * time.Second

// Look reads once, for at most three seconds.
func Look(ctx context.Context, from Source) (top.Seen, error) {
	limited, stop := context.WithTimeout(ctx, patience)
	defer stop()
	seen, err := from.Look(limited)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("the plugin has not answered for %v: %w", patience, err)
	}
	return seen, err
}

// FromSocket returns a Source for the plugin that listens on a status socket.
func FromSocket(socket string) Source { return &plugin{client: statusapi.NewClient(socket)} }

// plugin reads through the status socket.
type plugin struct {
	client  *statusapi.Client
	machine *topology.Machine // valid as long as the same CPUs are online
}

// Look requests the status, and the machine if it has changed.
func (p *plugin) Look(ctx context.Context) (top.Seen, error) {
	now, err := p.client.StatusIn(ctx)
	if err != nil {
		return top.Seen{}, err
	}
	if p.machine == nil || p.machine.Online != now.Machine.Online {
		if p.machine, err = p.client.Machine(ctx); err != nil {
			p.machine = nil
			return top.Seen{}, err
		}
	}
	return top.Seen{Status: now, Machine: p.machine}, nil
}
