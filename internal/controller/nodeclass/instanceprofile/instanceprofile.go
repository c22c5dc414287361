// Package instanceprofile deletes instance profiles that are no longer in use: those of roles that a node class had
// before.
package instanceprofile

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
)

// interval is the time between two collections. An unused profile costs nothing but quota, so it is long.
const interval = 30 * time.Minute

// collector deletes profiles that have been unused for a while.
type collector interface {
	CollectInstanceProfiles(ctx context.Context, use func(ctx context.Context) (cloudprovider.ProfileUse, error)) ([]string, error)
}

// Loop collects instance profiles.
type Loop struct {
	// Live reads from the API server: a claim that the cache lacks must not cost its instance the role.
	Live  client.Reader
	Cloud collector
	Log   *slog.Logger
}

// NeedLeaderElection makes sure that only one replica deletes.
func (l *Loop) NeedLeaderElection() bool { return true }

// Start collects until ctx is canceled.
func (l *Loop) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, l.pass, interval)
	return nil
}

func (l *Loop) pass(ctx context.Context) {
	deleted, err := l.Cloud.CollectInstanceProfiles(ctx, l.use)
	for _, name := range deleted {
		l.Log.Info("deleted instance profile that nothing uses", "name", name)
	}
	if err != nil && ctx.Err() == nil {
		l.Log.Error("collecting instance profiles", "error", err)
	}
}

// errNoClasses keeps all profiles when NodeClaims remain of node classes that are gone: what was read cannot be
// complete.
var errNoClasses = errors.New("there are NodeClaims of node classes that do not exist; no instance profile is deleted")

// use returns what needs a profile: the current node classes, and every instance until it is gone.
func (l *Loop) use(ctx context.Context) (cloudprovider.ProfileUse, error) {
	var classes awsv1.EC2NodeClassList
	if err := l.Live.List(ctx, &classes); err != nil {
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
	incomplete := false
	err := cluster.EachClaim(ctx, l.Live, func(claim *karpv1.NodeClaim) {
		if !awsv1.IsEC2NodeClass(claim.Spec.NodeClassRef) {
			return
		}
		if name := claim.Annotations[awsv1.AnnotationInstanceProfileName]; name != "" {
			use.Names[strings.Clone(name)] = true
			return
		}
		uid, known := uids[claim.Spec.NodeClassRef.Name]
		incomplete = incomplete || !known && claim.Status.ProviderID != ""
		use.Unsure[uid] = true // its launch may be in progress
	})
	switch {
	case err != nil:
		return cloudprovider.ProfileUse{}, err
	case incomplete:
		return cloudprovider.ProfileUse{}, errNoClasses
	}
	return use, nil
}
