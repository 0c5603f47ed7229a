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
	Read(context.Context) (top.State, error)
}

// patience limits the time of one reading.
const patience = 3 * time.Second

// Read reads once, for at most three seconds.
func Read(ctx context.Context, from Source) (top.State, error) {
	limited, stop := context.WithTimeout(ctx, patience)
	defer stop()
	state, err := from.Read(limited)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("the plugin has not answered for %v: %w", patience, err)
	}
	return state, err
}

// FromSocket returns a Source for the plugin that listens on a status socket.
func FromSocket(socket string) Source { return &plugin{client: statusapi.NewClient(socket)} }

// plugin reads through the status socket.
type plugin struct {
	client  *statusapi.Client
	machine *topology.Machine // valid as long as the same CPUs are online
}

// Read requests the status, and the machine if it has changed.
func (p *plugin) Read(ctx context.Context) (top.State, error) {
	now, err := p.client.StatusIn(ctx)
	if err != nil {
		return top.State{}, err
	}
	if p.machine == nil || p.machine.Online != now.Machine.Online {
		if p.machine, err = p.client.Machine(ctx); err != nil {
			p.machine = nil
			return top.State{}, err
		}
	}
	return top.State{Status: now, Machine: p.machine}, nil
}
