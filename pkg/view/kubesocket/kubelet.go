package kubesocket

import (
	"encoding/json"
	"net/http"
	"regexp"
	"sync"
)

// maxVersion bounds the kubelet's version in bytes.
const maxVersion = 128

var kubeletVersion = regexp.MustCompile(`^v[0-9]{1,4}\.[0-9]{1,4}[0-9A-Za-z.+-]*$`)

// kubeletRoute takes the kubelet's version.
type kubeletRoute struct {
	set     func(version string) error
	setting sync.Mutex // held while a version is applied
}

// ServeHTTP takes one version at a time: applying one may wait for the kernel.
func (k *kubeletRoute) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !k.setting.TryLock() {
		http.Error(w, "another version is being applied: send this one again later", http.StatusServiceUnavailable)
		return
	}
	defer k.setting.Unlock()
	body, ok := read(w, r, maxVersion)
	if !ok {
		return
	}
	var version string
	if err := json.Unmarshal(body, &version); err != nil || !kubeletVersion.MatchString(version) {
		http.Error(w, "the kubelet's version must be a string as \"v1.36.0\"", http.StatusBadRequest)
		return
	}
	if err := k.set(version); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}
