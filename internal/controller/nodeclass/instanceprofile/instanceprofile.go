// Package instanceprofile clears away instance profiles that nothing uses any more: those of roles that a node class had once.
package instanceprofile

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// every is how often profiles are looked through.
const every = 30 * time.Minute

// collector deletes profiles that have not been used for a while.
type collector interface {
	CollectInstanceProfiles(ctx context.Context, use func(ctx context.Context) (cloudprovider.ProfileUse, error)) ([]string, error)
}

// Loop collects.
type Loop struct {
	// Live reads the API server itself: a claim that the cache misses must not cost its instance the role.
	Live  client.Reader
	Cloud collector
	Log   *slog.Logger
}

// NeedLeaderElection makes sure that only one process deletes.
func (l *Loop) NeedLeaderElection() bool { return true }

// Start collects until ctx ends.
func (l *Loop) Start(ctx context.Context) error {
	for {
		l.pass(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

func (l *Loop) pass(ctx context.Context) {
	gone, err := l.Cloud.CollectInstanceProfiles(ctx, l.use)
	for _, name := range gone {
		l.Log.Info("deleted instance profile that nothing uses", "name", name)
	}
	if err != nil && ctx.Err() == nil {
		l.Log.Error("collecting instance profiles", "error", err)
	}
}

// errNoClasses keeps profiles where the node classes are gone and their claims are not: then the books are wrong.
var errNoClasses = errors.New("there are NodeClaims of node classes that do not exist; no instance profile is deleted")

// use is what needs a profile: the node classes as they are, and every instance until it is gone.
func (l *Loop) use(ctx context.Context) (cloudprovider.ProfileUse, error) {
	var classes awsv1.EC2NodeClassList
	var claims karpv1.NodeClaimList
	if err := errors.Join(l.Live.List(ctx, &classes), l.Live.List(ctx, &claims)); err != nil {
		return cloudprovider.ProfileUse{}, err
	}
	use := cloudprovider.ProfileUse{Names: map[string]bool{}, Classes: map[string]bool{}, Unsure: map[string]bool{}}
	uids := map[string]string{}
	for i := range classes.Items {
		class := &classes.Items[i]
		uids[class.Name] = string(class.UID)
		use.Classes[string(class.UID)] = true
		use.Names[class.Status.InstanceProfile] = true
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		if !awsv1.IsEC2NodeClass(claim.Spec.NodeClassRef) {
			continue
		}
		if name := claim.Annotations[awsv1.AnnotationInstanceProfileName]; name != "" {
			use.Names[name] = true
			continue
		}
		uid, known := uids[claim.Spec.NodeClassRef.Name]
		if !known && claim.Status.ProviderID != "" {
			return cloudprovider.ProfileUse{}, errNoClasses
		}
		use.Unsure[uid] = true // it may just be launching
	}
	return use, nil
}
