package statusapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"

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

// admit accepts requests of root, of this process' own user, and of the users of the admission.
func admit(next http.Handler, a *Admission) http.Handler {
	own := uint32(os.Geteuid())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, _ := r.Context().Value(peerKey{}).(peer)
		if p.err == nil && (p.uid == 0 || p.uid == own || slices.Contains(a.More, p.uid)) {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Connection", "close")
		if p.err != nil {
			http.Error(w, "the user behind this connection is unknown: "+p.err.Error(), http.StatusForbidden)
			return
		}
		if a.Refuser != nil {
			a.Refuser.Denied(p.uid)
		}
		http.Error(w, fmt.Sprintf("user %d may not ask: be root, or user %s", p.uid, usersOf(own, a.More)), http.StatusForbidden)
	})
}

// usersOf lists the users who may ask besides root.
func usersOf(own uint32, more []uint32) string {
	users := []string{fmt.Sprintf("%d as sluice is", own)}
	for _, uid := range more {
		users = append(users, strconv.FormatUint(uint64(uid), 10))
	}
	return strings.Join(users, ", or ")
}
