package beside

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// The stand-in and Dovetail never act at once: the stand-in takes the lease only when nobody renews it, and gives it up at once.
func TestLease(t *testing.T) {
	now := time.Date(2026, 11, 29, 7, 0, 0, 0, time.UTC)
	kube := fake.NewClientBuilder().Build()
	l := newLease(kube)
	hold := func(at time.Time, want bool) {
		t.Helper()
		if has, err := l.hold(t.Context(), at); err != nil || has != want {
			t.Errorf("at %v it has the lease: %v (%v), want %v", at, has, err, want)
		}
	}
	read := func() *coordinationv1.Lease {
		t.Helper()
		out := &coordinationv1.Lease{}
		if err := kube.Get(t.Context(), client.ObjectKey{Namespace: Namespace, Name: leaseName}, out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	hold(now, true)
	hold(now.Add(time.Second), true)
	if got := *read().Spec.LeaseTransitions; got != 1 {
		t.Errorf("%d transitions after a renewal, want 1", got)
	}

	if err := l.release(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := read()
	if got := *other.Spec.HolderIdentity; got != "" {
		t.Errorf("after the release, %q has the lease", got)
	}
	name := "dovetail"
	take(&other.Spec, now.Add(2*time.Second))
	other.Spec.HolderIdentity = &name
	if err := kube.Update(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	hold(now.Add(3*time.Second), false)
	if err := l.release(t.Context()); err != nil || *read().Spec.HolderIdentity != name {
		t.Errorf("a release takes the lease from %s (%v)", name, err)
	}
	hold(now.Add(2*time.Second).Add(leaseSeconds*time.Second).Add(time.Second), true)
}
