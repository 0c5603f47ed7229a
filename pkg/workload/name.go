package workload

import "strings"

// NameOf returns the name of a pod's workload by the pod's "namespace/name" and its owner, as
// "ReplicaSet namespace/name". Without an owner, it is the pod's name without what differs between
// the pods of an owner.
func NameOf(ref, owner string) string {
	if kind, of, ok := strings.Cut(owner, " "); ok {
		switch kind {
		case "ReplicaSet": // of a Deployment: the name ends with the hash of its template
			return withoutHash(of, 8, 10)
		case "Job": // of a CronJob: the name ends with its time in minutes
			return withoutNumber(of, 8)
		}
		return of
	}
	if short := withoutHash(ref, 5, 5); short != ref { // of a ReplicaSet, a DaemonSet or a Job
		return withoutNumber(withoutHash(short, 8, 10), 8)
	}
	return withoutNumber(ref, 1) // of a StatefulSet
}

// hashLetters are those of the names that Kubernetes makes (k8s.io/apimachinery, util/rand).
const hashLetters = "bcdfghjklmnpqrstvwxz2456789"

// withoutHash removes a last part "-hash" of so many letters.
func withoutHash(name string, least, most int) string {
	at := strings.LastIndexByte(name, '-')
	if n := len(name) - at - 1; at < 1 || n < least || n > most || strings.Trim(name[at+1:], hashLetters) != "" {
		return name
	}
	return name[:at]
}

// withoutNumber removes a last part "-number" of at least so many digits.
func withoutNumber(name string, least int) string {
	at := strings.LastIndexByte(name, '-')
	if at < 1 || len(name)-at-1 < least || strings.Trim(name[at+1:], "0123456789") != "" {
		return name
	}
	return name[:at]
}
