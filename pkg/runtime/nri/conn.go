package nri

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"

	"github.com/containerd/nri/pkg/api"
	nrinet "github.com/containerd/nri/pkg/net"
)

// connection is a connection whose end can be waited for, whichever side closes it.
type connection struct {
	net.Conn
	gone chan struct{}
	end  func() // closes gone, once
}

func (c *connection) Close() error {
	c.end()
	return c.Conn.Close()
}

// dial connects to the runtime's socket, or uses the connection that a pre-installed plugin has
// inherited.
func (p *Plugin) dial(ctx context.Context) (*connection, error) {
	conn, err := p.open(ctx)
	if err != nil {
		return nil, err
	}
	gone := make(chan struct{})
	return &connection{Conn: conn, gone: gone, end: sync.OnceFunc(func() { close(gone) })}, nil
}

func (p *Plugin) open(ctx context.Context) (net.Conn, error) {
	if fd := os.Getenv(api.PluginSocketEnvVar); fd != "" {
		number, err := strconv.Atoi(fd)
		if err != nil {
			return nil, fmt.Errorf("%s=%q is no file descriptor", api.PluginSocketEnvVar, fd)
		}
		return nrinet.NewFdConn(number)
	}
	socket := p.Socket
	if socket == "" {
		socket = api.DefaultSocketPath
	}
	return (&net.Dialer{}).DialContext(ctx, "unix", socket)
}
