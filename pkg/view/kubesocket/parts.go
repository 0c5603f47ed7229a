package kubesocket

import (
	"net/http"
	"sync"

	"github.com/sluice-dev/sluice/pkg/cluster/policy"
)

// partsRoute takes the parts of the configuration that the fleet's policy has for this node.
type partsRoute struct {
	set     func([]policy.Part) error
	setting sync.Mutex // held while parts are read and applied
}

// ServeHTTP takes one list at a time: applying one may wait for the kernel.
func (p *partsRoute) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !p.setting.TryLock() {
		http.Error(w, "other parts are being applied: send these again later", http.StatusServiceUnavailable)
		return
	}
	defer p.setting.Unlock()
	body, ok := read(w, r, policy.MaxMessage)
	if !ok {
		return
	}
	parts, err := policy.DecodeParts(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if err := p.set(parts); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}
