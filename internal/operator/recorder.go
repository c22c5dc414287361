package operator

import (
	"context"
	"time"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/outcome"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
)

// newRecorder begins to record. The caller closes it.
func (a *assembly) newRecorder() (*recorder.Recorder, error) {
	size, err := a.settings.RecorderBytes()
	if err != nil {
		return nil, err
	}
	return recorder.New(recorder.Config{
		Path: a.settings.RecorderPath, Size: size, Version: a.build.Version, Log: a.log, Metrics: a.measures.recorder, Now: time.Now,
		NodeClasses: a.listNodeClasses,
		Prices: func() (out []recorder.PriceSource) {
			for _, s := range a.aws.Offerings.PriceState() {
				out = append(out, recorder.PriceSource{CapacityType: s.CapacityType, Read: s.Read.UTC()})
			}
			return out
		},
	})
}

// wireRecorder wires what records the outcome of decisions.
func (a *assembly) wireRecorder() error {
	return a.register(&outcome.Watcher{Recorder: a.recorder, Now: time.Now, Price: a.prices.Of})
}

// nodeClassesTimeout bounds how long a pass waits for a cache that is not filled yet. A filled one answers from memory.
const nodeClassesTimeout = time.Second

// listNodeClasses lists the EC2NodeClasses of the cache; none if it is not filled yet.
func (a *assembly) listNodeClasses() []*awsv1.EC2NodeClass {
	ctx, cancel := context.WithTimeout(context.Background(), nodeClassesTimeout)
	defer cancel()
	var list awsv1.EC2NodeClassList
	if err := a.mgr.GetClient().List(ctx, &list); err != nil {
		a.log.Debug("the recording lacks the node classes", "error", err)
		return nil
	}
	out := make([]*awsv1.EC2NodeClass, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out
}
