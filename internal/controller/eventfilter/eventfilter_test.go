package eventfilter

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
)

func TestOnlyDeletions(t *testing.T) {
	o, p := &awsv1.EC2NodeClass{}, OnlyDeletions()
	if p.Create(event.CreateEvent{Object: o}) || p.Update(event.UpdateEvent{ObjectOld: o, ObjectNew: o}) ||
		p.Generic(event.GenericEvent{Object: o}) {
		t.Error("wakes for an object that is there")
	}
	if !p.Delete(event.DeleteEvent{Object: o}) {
		t.Error("sleeps on though the object is gone")
	}
}

func TestDeleting(t *testing.T) {
	stays, p := &awsv1.EC2NodeClass{}, Deleting()
	goes := stays.DeepCopy()
	goes.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	if p.Create(event.CreateEvent{Object: stays}) || p.Update(event.UpdateEvent{ObjectOld: stays, ObjectNew: stays}) {
		t.Error("wakes for an object that stays")
	}
	if !p.Create(event.CreateEvent{Object: goes}) || !p.Update(event.UpdateEvent{ObjectOld: stays, ObjectNew: goes}) {
		t.Error("sleeps on though the object is being deleted")
	}
}

func TestIgnoreStatusUpdates(t *testing.T) {
	tests := []struct {
		name   string
		change func(c *awsv1.EC2NodeClass)
		want   bool
	}{
		{"the same again, as a resync sends it", func(*awsv1.EC2NodeClass) {}, false},
		{"a condition in other words", func(c *awsv1.EC2NodeClass) {
			c.ResourceVersion = "2"
			condition.SetUnknown(c, awsv1.ConditionAMIsReady, condition.Because("Unauthorized", "RequestID: 2"), time.Now())
		}, false},
		{"spec", func(c *awsv1.EC2NodeClass) { c.Generation++ }, true},
		{"annotation", func(c *awsv1.EC2NodeClass) { c.Annotations = map[string]string{"a": "b"} }, true},
		{"label", func(c *awsv1.EC2NodeClass) { c.Labels = map[string]string{"a": "b"} }, true},
		{"finalizer taken away", func(c *awsv1.EC2NodeClass) { c.Finalizers = nil }, true},
		{"deletion", func(c *awsv1.EC2NodeClass) { c.DeletionTimestamp = &metav1.Time{Time: time.Now()} }, true},
		{"another object of its name", func(c *awsv1.EC2NodeClass) { c.UID = "other" }, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := &awsv1.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{awsv1.FinalizerTermination}}}
			condition.SetUnknown(before, awsv1.ConditionAMIsReady, condition.Because("Unauthorized", "RequestID: 1"), time.Now())
			after := before.DeepCopy()
			tt.change(after)
			if got := IgnoreStatusUpdates().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tt.want {
				t.Errorf("wakes: %v, want %v", got, tt.want)
			}
		})
	}
}
