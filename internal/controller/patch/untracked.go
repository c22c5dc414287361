package patch

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Untracked returns a merge patch that also has the API server forget which manager has written which field of the
// object. From then on, until somebody uses server-side apply, no write to the object is tracked. For an object that
// only controllers write, the record reports nothing, and takes a quarter of its size and of the CPU time of each write.
//
// Those who have applied the object before lose their record, too: use it for new objects only.
func Untracked(p client.Patch) client.Patch { return untracked{p} }

type untracked struct{ client.Patch }

// Data implements client.Patch.
func (u untracked) Data(o client.Object) ([]byte, error) {
	if u.Type() != types.MergePatchType {
		return nil, fmt.Errorf("a %s cannot have the managers of fields forgotten", u.Type())
	}
	data, err := u.Patch.Data(o)
	if err != nil {
		return nil, err
	}
	var body map[string]any
	if err := json.Unmarshal(data, &body); err != nil {
		return nil, fmt.Errorf("forget the managers of fields: %w", err)
	}
	metadata, _ := body["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
		body["metadata"] = metadata
	}
	metadata["managedFields"] = []metav1.ManagedFieldsEntry{{}} // the API server resets them for this value
	return json.Marshal(body)
}
