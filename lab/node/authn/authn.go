package authn

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EKS is the part of the EKS API that the authenticator calls.
type EKS interface {
	DescribeCluster(context.Context, *eks.DescribeClusterInput, ...func(*eks.Options)) (*eks.DescribeClusterOutput, error)
	ListAccessEntries(context.Context, *eks.ListAccessEntriesInput, ...func(*eks.Options)) (*eks.ListAccessEntriesOutput, error)
	DescribeAccessEntry(context.Context, *eks.DescribeAccessEntryInput, ...func(*eks.Options)) (*eks.DescribeAccessEntryOutput, error)
}

// EC2 is the part of the EC2 API that the authenticator calls.
type EC2 interface {
	DescribeInstances(context.Context, *ec2.DescribeInstancesInput, ...func(*ec2.Options)) (*ec2.DescribeInstancesOutput, error)
}

// ConfigMaps reads a namespace of the cluster, as client-go's CoreV1().ConfigMaps("kube-system") does.
type ConfigMaps interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*corev1.ConfigMap, error)
}

// Config is what an Authenticator needs; all fields without a default are required.
type Config struct {
	// Cluster is the EKS name of the cluster.
	Cluster string
	// STSEndpoint is the URL of STS. Tokens that were signed for another host are rejected.
	STSEndpoint string
	EKS         EKS
	EC2         EC2
	// ConfigMaps is the namespace kube-system, where aws-auth is.
	ConfigMaps ConfigMaps
	// AccessTTL is for how long access entries and aws-auth are believed; default one second.
	AccessTTL time.Duration
	HTTP      *http.Client     // default http.DefaultClient
	Now       func() time.Time // default time.Now
	Log       *slog.Logger     // default discards
}

// Authenticator answers the TokenReviews of one cluster. It is an http.Handler, safe for concurrent use.
type Authenticator struct {
	cfg  Config
	host string

	mu sync.Mutex
	// access is what was found last; nil = nothing yet.
	access *access

	cached sync.Mutex
	// names are private DNS names by instance ID; they never change.
	names map[string]string
	// identities are what STS stated of tokens, by their hash; a token is signed once and for all.
	identities map[[sha256.Size]byte]cachedIdentity
}

// cachedIdentity is believed until the token expires.
type cachedIdentity struct {
	identity Identity
	until    time.Time
}

// access is a cluster's access configuration as of one moment. What is requested later is read then.
type access struct {
	at         time.Time
	mode       Mode
	principals []string
	entries    map[string]AccessEntry
	authMap    *AuthMap
}

// New returns an authenticator. It calls nobody.
func New(cfg Config) (*Authenticator, error) {
	u, err := url.Parse(cfg.STSEndpoint)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("authenticator of cluster %q: STS endpoint %q is not a URL", cfg.Cluster, cfg.STSEndpoint)
	}
	if cfg.AccessTTL == 0 {
		cfg.AccessTTL = time.Second
	}
	if cfg.HTTP == nil {
		cfg.HTTP = http.DefaultClient
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Authenticator{cfg: cfg, host: u.Host, names: map[string]string{}, identities: map[[sha256.Size]byte]cachedIdentity{}}, nil
}

// errUnmapped is the identity of nobody in this cluster.
var errUnmapped = errors.New("no mapping")

// Authenticate returns the Kubernetes user that a token stands for. An error that [Denied] reports
// true for is final; any other means that the authenticator could not find out.
func (a *Authenticator) Authenticate(ctx context.Context, token string) (authenticationv1.UserInfo, error) {
	id, err := a.identify(ctx, token)
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	m, err := a.mapping(ctx, id)
	if err != nil {
		return authenticationv1.UserInfo{}, fmt.Errorf("map %s: %w", id.Principal, err)
	}
	username, err := expand(m.Username, id, func() (string, error) { return a.privateDNSName(ctx, id.Session) })
	if err != nil {
		return authenticationv1.UserInfo{}, fmt.Errorf("map %s: %w", id.Principal, err)
	}
	return authenticationv1.UserInfo{
		Username: username,
		UID:      fmt.Sprintf("aws-iam-authenticator:%s:%s", id.Account, id.UserID),
		Groups:   m.Groups,
		Extra: map[string]authenticationv1.ExtraValue{
			"arn": {id.ARN}, "canonicalArn": {id.Principal}, "sessionName": {id.Session},
			"accessKeyId": {id.AccessKeyID}, "principalId": {id.UserID},
		},
	}, nil
}

// Denied reports whether an error of Authenticate means that the token is nobody's here.
func Denied(err error) bool { return errors.Is(err, errDenied) || errors.Is(err, errUnmapped) }

// identify returns who signed a token.
func (a *Authenticator) identify(ctx context.Context, token string) (Identity, error) {
	now := a.cfg.Now()
	u, err := parseToken(token, a.host, now)
	if err != nil {
		return Identity{}, fmt.Errorf("%w: %w", errDenied, err)
	}
	hash := sha256.Sum256([]byte(token))
	a.cached.Lock()
	known, ok := a.identities[hash]
	a.cached.Unlock()
	if ok && now.Before(known.until) {
		return known.identity, nil
	}
	id, err := a.callSTS(ctx, u)
	if err != nil {
		return Identity{}, err
	}
	a.cached.Lock()
	defer a.cached.Unlock()
	maps.DeleteFunc(a.identities, func(_ [sha256.Size]byte, k cachedIdentity) bool { return now.After(k.until) })
	a.identities[hash] = cachedIdentity{identity: id, until: now.Add(TokenLife)} // parseToken rejects it earlier
	return id, nil
}

// mapping looks up the principal in the sources of the cluster's authentication mode. An access entry wins.
func (a *Authenticator) mapping(ctx context.Context, id Identity) (Mapping, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	acc, err := a.readAccess(ctx)
	if err != nil {
		return Mapping{}, err
	}
	for _, arn := range acc.principals {
		if isPrincipal(arn, id.Principal) {
			e, err := a.readEntry(ctx, acc, arn)
			return e.mapping(id), err
		}
	}
	if !acc.mode.usesConfigMap() {
		return Mapping{}, fmt.Errorf("%w: mode %s, no access entry", errUnmapped, acc.mode)
	}
	authMap, err := a.readAuthMap(ctx, acc)
	if err != nil {
		return Mapping{}, err
	}
	m, ok := authMap.lookup(id.Principal)
	if !ok {
		return Mapping{}, fmt.Errorf("%w: mode %s, not in ConfigMap kube-system/aws-auth", errUnmapped, acc.mode)
	}
	return m, nil
}

// readAccess returns the cluster's mode and, if it counts, who has an access entry. The lock must be held.
func (a *Authenticator) readAccess(ctx context.Context) (*access, error) {
	if a.access != nil && a.cfg.Now().Sub(a.access.at) < a.cfg.AccessTTL {
		return a.access, nil
	}
	acc := &access{at: a.cfg.Now(), mode: ModeConfigMap, entries: map[string]AccessEntry{}}
	out, err := a.cfg.EKS.DescribeCluster(ctx, &eks.DescribeClusterInput{Name: &a.cfg.Cluster})
	if err != nil {
		return nil, fmt.Errorf("describe cluster %s: %w", a.cfg.Cluster, err)
	}
	if c := out.Cluster.AccessConfig; c != nil && c.AuthenticationMode != "" {
		acc.mode = Mode(c.AuthenticationMode)
	}
	if acc.mode.usesEntries() {
		pages := eks.NewListAccessEntriesPaginator(a.cfg.EKS, &eks.ListAccessEntriesInput{ClusterName: &a.cfg.Cluster})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return nil, fmt.Errorf("list access entries of cluster %s: %w", a.cfg.Cluster, err)
			}
			acc.principals = append(acc.principals, page.AccessEntries...)
		}
	}
	a.access = acc
	return acc, nil
}

// readEntry returns an access entry. The lock must be held.
func (a *Authenticator) readEntry(ctx context.Context, acc *access, arn string) (AccessEntry, error) {
	if e, ok := acc.entries[arn]; ok {
		return e, nil
	}
	out, err := a.cfg.EKS.DescribeAccessEntry(ctx, &eks.DescribeAccessEntryInput{ClusterName: &a.cfg.Cluster, PrincipalArn: &arn})
	if err != nil {
		return AccessEntry{}, fmt.Errorf("describe access entry of %s: %w", arn, err)
	}
	e := AccessEntry{
		PrincipalARN: arn, Type: aws.ToString(out.AccessEntry.Type),
		Username: aws.ToString(out.AccessEntry.Username), Groups: out.AccessEntry.KubernetesGroups,
	}
	acc.entries[arn] = e
	return e, nil
}

// readAuthMap returns the content of aws-auth. The lock must be held.
func (a *Authenticator) readAuthMap(ctx context.Context, acc *access) (AuthMap, error) {
	if acc.authMap != nil {
		return *acc.authMap, nil
	}
	cm, err := a.cfg.ConfigMaps.Get(ctx, "aws-auth", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return AuthMap{}, fmt.Errorf("%w: mode %s, no ConfigMap kube-system/aws-auth", errUnmapped, acc.mode)
	}
	if err != nil {
		return AuthMap{}, err
	}
	m, err := ParseAuthMap(cm.Data)
	if err != nil {
		return AuthMap{}, fmt.Errorf("%w: %w", errUnmapped, err)
	}
	acc.authMap = &m
	return m, nil
}

var instanceID = regexp.MustCompile(`^i-[0-9a-f]{8,17}$`)

// privateDNSName returns the private DNS name of the instance with the session name as its ID.
func (a *Authenticator) privateDNSName(ctx context.Context, session string) (string, error) {
	if !instanceID.MatchString(session) {
		return "", fmt.Errorf("%w: session %q is not that of an instance", errUnmapped, session)
	}
	a.cached.Lock()
	name := a.names[session]
	a.cached.Unlock()
	if name != "" {
		return name, nil
	}
	out, err := a.cfg.EC2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{session}})
	if err != nil {
		return "", fmt.Errorf("describe instance %s: %w", session, err)
	}
	for _, r := range out.Reservations {
		for _, i := range r.Instances {
			name = aws.ToString(i.PrivateDnsName)
		}
	}
	if name == "" {
		return "", fmt.Errorf("instance %s has no private DNS name", session)
	}
	a.cached.Lock()
	defer a.cached.Unlock()
	a.names[session] = name
	return name, nil
}

// ServeHTTP answers a TokenReview. A token of nobody is an answer; not knowing is a server error, on
// which the API server tries again.
func (a *Authenticator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review authenticationv1.TokenReview
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&review); err != nil {
		http.Error(w, "decode TokenReview: "+err.Error(), http.StatusBadRequest)
		return
	}
	user, err := a.Authenticate(r.Context(), review.Spec.Token)
	switch {
	case err == nil:
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: user}
	case Denied(err):
		a.cfg.Log.Info("access denied", "cluster", a.cfg.Cluster, "reason", err.Error())
		review.Status = authenticationv1.TokenReviewStatus{Error: err.Error()}
	default:
		a.cfg.Log.Warn("token review failed", "cluster", a.cfg.Cluster, "error", err.Error())
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	review.Spec = authenticationv1.TokenReviewSpec{}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(review); err != nil {
		a.cfg.Log.Warn("answer token review", "error", err.Error())
	}
}
