package patch

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster/apitest"
)

// The write is made, under its preconditions, and no manager is left.
func TestUntracked(t *testing.T) {
	start := time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
	claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: "a", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "dovetail", Operation: metav1.ManagedFieldsOperationUpdate}},
	}}
	api := apitest.New(t, func() time.Time { return start }, claim)
	// Caches have no managers of fields.
	before := readClaim(t, api)
	before.ManagedFields = nil
	for _, tt := range []struct {
		name     string
		change   func(*karpv1.NodeClaim)
		conflict bool
	}{
		{"nothing else changes", func(*karpv1.NodeClaim) {}, false},
		{"it has changed since it was read", func(c *karpv1.NodeClaim) { metav1.SetMetaDataAnnotation(&c.ObjectMeta, "ours", "1") }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := before.DeepCopy()
			tt.change(o)
			err := api.Patch(t.Context(), o, Untracked(Locked(before)))
			if (err != nil) != tt.conflict {
				t.Fatalf("error %v", err)
			}
			for _, f := range readClaim(t, api).ManagedFields {
				if f.Manager != "" {
					t.Errorf("%s still manages fields", f.Manager)
				}
			}
		})
	}
}

func TestOnlyMergePatchesAreUntracked(t *testing.T) {
	p := Untracked(client.RawPatch(types.JSONPatchType, []byte("[]")))
	if data, err := p.Data(&karpv1.NodeClaim{}); err == nil {
		t.Errorf("a JSON patch becomes %s", data)
	}
}
