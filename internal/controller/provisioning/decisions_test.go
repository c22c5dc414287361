package provisioning

import (
	"strings"
	"testing"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
)

// Anyone who looks at a claim, or at the events of its pods, finds the decision in the recording.
func TestTheClaimAndTheEventNameTheDecision(t *testing.T) {
	f := controllertest.New(t, controllertest.Class(), controllertest.Pool("general"), pending("a"))
	rec, err := recorder.New(recorder.Config{Size: recorder.MinSize, Log: f.Log, Now: f.Now})
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	p := provisioner(f)
	p.Recorder = rec
	run(t, p)
	made := claims(t, f.API)
	if len(made) != 1 {
		t.Fatalf("%d claims", len(made))
	}
	id := made[0].Annotations[karpv1.AnnotationDecision]
	if said := strings.Join(f.RecordedEvents(), "\n"); id == "" || !strings.Contains(said, made[0].Name+", decision "+id) {
		t.Errorf("decision %q, events %q", id, said)
	}
}
