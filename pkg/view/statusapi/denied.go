package statusapi

import (
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
)

// denialInterval is the minimum time between two log lines about rejected users, because any
// user of the node can cause one.
const denialInterval = time.Minute

// DenialLog is a Refuser that logs rejected users, at most once a minute.
type DenialLog struct {
	log      logrus.FieldLogger
	loggedAt atomic.Int64 // Unix time in ns; 0 means never
	unlogged atomic.Int64
}

// NewDenialLog returns a DenialLog that writes to log.
func NewDenialLog(log logrus.FieldLogger) *DenialLog { return &DenialLog{log: log} }

// Denied implements Refuser. It is safe for concurrent use.
func (d *DenialLog) Denied(uid uint32) {
	now, last := time.Now(), d.loggedAt.Load()
	if now.Sub(time.Unix(0, last)) < denialInterval || !d.loggedAt.CompareAndSwap(last, now.UnixNano()) {
		d.unlogged.Add(1)
		return
	}
	d.log.WithField("user", uid).WithField("unlogged", d.unlogged.Swap(0)).
		Warn("Status refused: only root and sluice's own user may ask; is the socket's mode still 0600, and its folder's 0700?")
}
