package statusapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"

	"golang.org/x/sys/unix"
)

// peerKey is the context key of a connection's peer.
type peerKey struct{}

// peer is the effective user of the process that connected, at that time (SO_PEERCRED).
type peer struct {
	uid uint32
	err error
}

func withPeer(ctx context.Context, conn net.Conn) context.Context {
	uid, err := peerOf(conn)
	return context.WithValue(ctx, peerKey{}, peer{uid, err})
}

func peerOf(conn net.Conn) (uid uint32, err error) {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return 0, errors.New("this is no unix socket")
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0, err
	}
	var credentials *unix.Ucred
	var refused error
	err = raw.Control(func(fd uintptr) {
		credentials, refused = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, refused); err != nil {
		return 0, err
	}
	return credentials.Uid, nil
}

// Refuser is notified of users that the socket rejects.
type Refuser interface {
	Denied(uid uint32)
}

// admit accepts requests of root and of this process' own user.
func admit(next http.Handler, source Source) http.Handler {
	own := uint32(os.Geteuid())
	refuser, _ := source.(Refuser)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, _ := r.Context().Value(peerKey{}).(peer)
		if p.err == nil && (p.uid == 0 || p.uid == own) {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Connection", "close")
		if p.err != nil {
			http.Error(w, "the user behind this connection is unknown: "+p.err.Error(), http.StatusForbidden)
			return
		}
		if refuser != nil {
			refuser.Denied(p.uid)
		}
		http.Error(w, fmt.Sprintf("user %d may not ask: be root, or user %d as sluice is", p.uid, own), http.StatusForbidden)
	})
}
