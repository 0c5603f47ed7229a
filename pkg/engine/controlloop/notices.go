package controlloop

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/status"
)

// noticeFiles is what the pods' files have.
type noticeFiles struct {
	known   bool // otherwise they have what an earlier run wrote
	notice  control.Notice
	busy    bool   // they are being written
	problem string // why the last write failed, which was logged; "" if it did not
}

// stepNotices writes the notice that holds into the files of the pods that ask for it. In preview the
// files say that nothing is to be expected.
func (l *Loop) stepNotices(n control.Notice) {
	l.notice = n
	if !l.Authority().Acts("") {
		n = control.Notice{}
	}
	n.BeginsAt, n.EndsAt = n.BeginsAt.UTC().Truncate(time.Second), n.EndsAt.UTC().Truncate(time.Second) // equal times are then equal values
	files := &l.noticeFiles
	if l.Notices == nil || files.busy || files.known && files.notice == n {
		return
	}
	files.busy = true
	write := l.Notices.Write // a reload replaces the options meanwhile
	var err error
	l.Aside("notices written", func() { err = write(n) }, func() {
		problem := ""
		if err != nil {
			if problem = err.Error(); problem != files.problem {
				l.Log.WithError(err).Warn("The files with the pods' notices can't be written; it is tried again")
			}
		}
		*files = noticeFiles{known: err == nil, notice: n, problem: problem}
	})
}

// noticeStatus reports the notice that holds, once the controllers exist.
func (l *Loop) noticeStatus() status.Notices {
	s := status.Notices{Counts: l.Controllers.Notices.Counts()}
	if n := l.notice; n.Kind != "" {
		s.Active = &n
	}
	return s
}
