package controlloop

import (
	"errors"
	"maps"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/hostoffers"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// rewriteAfter is the time after which a host application's file is written again although it says the
// same, so that it stays valid.
const rewriteAfter = hostoffers.Valid / 5

// hostFiles are the files of host applications.
type hostFiles struct {
	written map[string]hostFile // by path
	busy    bool                // they are being written
	problem string              // why the last write failed, which was logged; "" if it did not
}

type hostFile struct {
	content hostoffers.Content // with no time
	at      time.Time          // of its writing
}

// followHosts looks for host applications whose cgroups have appeared or gone.
func (l *Loop) followHosts() {
	if len(l.Config.Control.HostApplications) == 0 && len(l.View.HostApplications) == 0 {
		return
	}
	if l.Settings.FindHosts() {
		l.Settings.DeclareHosts()
		l.Refresh()
	}
}

// tellHosts writes what host applications may use into their files. A loop that does not act has
// none.
func (l *Loop) tellHosts() {
	files := &l.hostFiles
	if files.busy {
		return
	}
	now := l.Now()
	next := map[string]hostFile{}
	if l.Authority().Acts("") {
		for i := range l.Config.Control.HostApplications {
			if a := &l.Config.Control.HostApplications[i]; a.File != "" {
				next[a.File] = hostFile{l.hostOffer(a), now}
			}
		}
	}
	var remove []string
	for file, has := range files.written {
		if want, still := next[file]; !still {
			remove = append(remove, file)
		} else if want.content == has.content && now.Sub(has.at) < rewriteAfter && !now.Before(has.at) {
			next[file] = has
		}
	}
	write := map[string]hostoffers.Content{}
	for file, f := range next {
		if f.at.Equal(now) {
			f.content.ValidUntil = now.Add(hostoffers.Valid).UTC().Truncate(time.Second)
			write[file] = f.content
		}
	}
	if len(write) == 0 && len(remove) == 0 {
		return
	}
	files.busy = true
	var err error
	l.Aside("offers to host applications written", func() { err = carryOut(write, remove) }, func() {
		files.busy = false
		problem := ""
		if err != nil {
			if problem = err.Error(); problem != files.problem {
				l.Log.WithError(err).Warn("The files with the offers to host applications can't be written; it is tried again")
			}
		} else {
			files.written = next
		}
		files.problem = problem
	})
}

func carryOut(write map[string]hostoffers.Content, remove []string) error {
	var errs []error
	for file, content := range write {
		errs = append(errs, hostoffers.Write(file, &content))
	}
	for _, file := range remove {
		errs = append(errs, hostoffers.Remove(file))
	}
	return errors.Join(errs...)
}

// hostOffer is what a host application may use now.
func (l *Loop) hostOffer(a *control.HostApplication) (c hostoffers.Content) {
	c.VCores, c.MemoryMB = hostoffers.InYARNUnits(a.PartOf(l.offer.All))
	c.Why = l.offer.Why
	return c
}

// hostStatus reports the host applications.
func (l *Loop) hostStatus() (all []status.HostApplication) {
	limits := maps.Collect(l.Memory.Limits())
	for i := range l.Config.Control.HostApplications {
		a := &l.Config.Control.HostApplications[i]
		offer := l.hostOffer(a)
		s := status.HostApplication{
			Name: a.Name, Cgroup: a.Cgroup, Problem: l.Settings.HostProblem(a), File: a.File, FileProblem: l.hostFiles.problem,
			Offer: a.PartOf(l.offer.All), VCores: offer.VCores, MemoryMB: offer.MemoryMB, Why: offer.Why,
			Quota: workload.MilliCPU(l.Settings.InForce().BatchCgroups[a.Cgroup].Quota.Milli()), MemoryLimitBytes: max(0, int64(limits[a.Cgroup])),
		}
		for j := range l.View.HostApplications {
			if u := &l.View.HostApplications[j]; u.Name == a.Name {
				held := l.View.Held[a.Cgroup]
				s.Used = control.Amount{CPU: u.CPU.Usage, MemoryBytes: held.NonCache()}
			}
		}
		all = append(all, s)
	}
	return all
}
