package kube

import (
	"errors"
	"net/http"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/claim"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// A claim that the kubelet does not end is ended once no container has used it, and the API server has said that it is
// not this node's, for ten minutes. An answer that says nothing of the claim changes nothing.
func TestForgottenClaims(t *testing.T) {
	t.Parallel()
	is := func(change func(*resourceapi.ResourceClaim)) func(*fakeAPI) {
		return func(api *fakeAPI) {
			api.claim = aClaim()
			change(api.claim)
		}
	}
	here := func(api *fakeAPI) { api.claim, api.claimStatus = nil, 0 }
	anew := is(func(c *resourceapi.ResourceClaim) { c.UID = "newer" })
	uses := func(s *status.Status) { s.Containers = []status.Container{{Class: workload.LSE, CPUs: cpuset.Of(3)}} }
	const never = -1
	for name, test := range map[string]struct {
		name      string
		api       func(*fakeAPI)
		status    func(*status.Status)
		meanwhile func(*fakeAPI, *status.Status) // in the fourth minute
		want      int                            // the minute of the end
	}{
		"it is there":          {name: "fast", want: never},
		"it is gone":           {name: "gone", want: 10},
		"it was made anew":     {name: "fast", api: anew, want: 10},
		"it is not allocated":  {name: "fast", api: is(func(c *resourceapi.ResourceClaim) { c.Status.Allocation = nil }), want: 10},
		"on another node":      {name: "fast", api: is(func(c *resourceapi.ResourceClaim) { c.Status.Allocation.Devices.Results[1].Pool = "n2" }), want: 10},
		"a container runs":     {name: "gone", status: uses, want: never},
		"no runtime":           {name: "gone", status: func(s *status.Status) { s.Runtime.Connected = false }, want: never},
		"a failing server":     {name: "fast", api: func(api *fakeAPI) { api.claimStatus = http.StatusInternalServerError }, want: never},
		"no right":             {name: "fast", api: func(api *fakeAPI) { api.claimStatus = http.StatusForbidden }, want: never},
		"no such API":          {name: "fast", api: func(api *fakeAPI) { api.claimStatus = http.StatusNotFound }, want: never},
		"a failure in between": {name: "fast", api: anew, meanwhile: func(api *fakeAPI, _ *status.Status) { api.claimStatus = http.StatusInternalServerError }, want: 10},
		"back in between":      {name: "fast", api: anew, meanwhile: func(api *fakeAPI, _ *status.Status) { here(api) }, want: 16},
		"used in between":      {name: "gone", meanwhile: func(_ *fakeAPI, s *status.Status) { uses(s) }, want: 16},
	} {
		d, api, plugin := newDriver(t)
		ended := never
		for minute := 0; minute <= 20 && ended == never; minute += int(lookInterval / time.Minute) {
			s := &status.Status{Runtime: status.Runtime{Connected: true}, Claims: &status.Claims{Reserved: []status.Claim{{ID: claimUID + "-0", Ref: "claim shop/" + test.name, CPUs: cpuset.Of(2, 3)}}}}
			here(api)
			if test.api != nil {
				test.api(api)
			}
			if test.status != nil {
				test.status(s)
			}
			if minute == 4 && test.meanwhile != nil {
				test.meanwhile(api, s)
			}
			if err := d.Heard(s); err != nil {
				t.Fatal(err)
			}
			d.look(t.Context(), time.Time{}.Add(time.Duration(minute)*time.Minute))
			if len(plugin.ended) > 0 {
				ended = minute
			}
		}
		if ended != test.want || ended != never && plugin.ended[0] != claimUID {
			t.Errorf("%s: %q have ended in minute %d, want minute %d", name, plugin.ended, ended, test.want)
		}
	}
}

// An end that fails is tried again. A claim that is prepared or used after the look does not end, nor one of a plugin
// that is away.
func TestForgottenClaimsAtTheEnd(t *testing.T) {
	t.Parallel()
	d, api, plugin := newDriver(t)
	s := &status.Status{Runtime: status.Runtime{Connected: true}, Claims: &status.Claims{Reserved: []status.Claim{{ID: claimUID + "-0", Ref: "claim shop/fast", Device: claim.Domain{Kind: claim.NUMA}, CPUs: cpuset.Of(2, 3)}}}}
	if err := d.Heard(s); err != nil {
		t.Fatal(err)
	}
	unused := d.unused.get()[0]
	d.endUnused(t.Context(), unused)
	if len(plugin.ended) > 0 {
		t.Error("a claim that is prepared after the look has ended")
	}
	api.claim = aClaim()
	api.claim.Status.Allocation = nil
	d.Lost()
	d.endUnused(t.Context(), unused)
	if len(plugin.ended) > 0 {
		t.Error("a claim of a plugin that is away has ended")
	}
	if err := d.Heard(s); err != nil {
		t.Fatal(err)
	}
	plugin.err = errors.New("no")
	for minute := range 13 {
		d.look(t.Context(), time.Time{}.Add(time.Duration(minute)*time.Minute))
	}
	if len(plugin.ended) != 3 {
		t.Errorf("an end that fails is tried %d times from the tenth minute to the twelfth, want 3", len(plugin.ended))
	}
}
