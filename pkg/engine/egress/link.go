package egress

import (
	"errors"

	"github.com/sluice-dev/sluice/pkg/observe"
)

// Link is what the configuration says of the node's link.
type Link struct {
	Devices      []string        // empty for the devices of the default routes
	Speed        observe.BitRate // 0 for what the kernel says
	FloorPercent int             // what pods have together while no plugin runs, in percent of the link
}

// Find completes a link by what the host knows of it. With an error, the devices or the speed are unknown.
func (l Link) Find(host interface {
	Uplinks() ([]string, error)
	Speed(device string) (int64, error)
}) (Link, error) {
	if len(l.Devices) == 0 {
		var err error
		if l.Devices, err = host.Uplinks(); err != nil {
			return l, err
		}
	}
	if len(l.Devices) == 0 {
		return l, errors.New("the node has no default route: name the devices of its link under control.egress.interfaces")
	}
	if l.Speed != 0 {
		return l, nil
	}
	var sum observe.BitRate
	for _, name := range l.Devices {
		speed, err := host.Speed(name)
		switch {
		case err != nil:
			return l, err
		case speed == 0:
			return l, errors.New("the kernel knows no speed of device " + name + ": set control.egress.linkSpeed")
		}
		sum += observe.BitRate(speed)
	}
	l.Speed = sum
	return l, nil
}
