// Load for a gRPC port of RocketMQ: SendMessage, or ReceiveMessage and AckMessage, through the stubs of
// Apache's Go client, with the metadata of its calls. Prints one line of JSON. Run by benchmarks/grpc.py.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"os"
	"sort"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	pb "github.com/apache/rocketmq-clients/golang/v5/protocol/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

var (
	address  = flag.String("address", "127.0.0.1:8081", "host:port")
	mode     = flag.String("mode", "send", "send, or receive (and ack)")
	topic    = flag.String("topic", "bench", "")
	group    = flag.String("group", "bench", "")
	inFlight = flag.Int("in-flight", 1, "concurrent calls")
	channels = flag.Int("connections", 1, "")
	seconds  = flag.Float64("seconds", 5, "")
	warmUp   = flag.Float64("warm-up", 1, "seconds before that, not counted")
	bodySize = flag.Int("body", 1024, "bytes")
	batch    = flag.Int("batch", 32, "messages of one receive")
	useTLS   = flag.Bool("tls", false, "")
	isBare   = flag.Bool("bare", false, "no Telemetry before the calls")
)

const clientID = "bench@1234@0@1a2b3c4d5e"

var broker string

type worker struct {
	client pb.MessagingServiceClient
	times  []time.Duration
	count  int64
}

func withMetadata(parent context.Context) context.Context {
	return metadata.AppendToOutgoingContext(parent,
		"x-mq-client-id", clientID,
		"x-mq-language", "GO",
		"x-mq-client-version", "5.1.4",
		"x-mq-date-time", time.Now().Format("20060102T150405Z"),
		"x-mq-request-id", fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x",
			rand.Uint32(), rand.Intn(1<<16), rand.Intn(1<<12), rand.Intn(1<<12), rand.Int63n(1<<48)),
		"x-mq-namespace", "",
		"x-mq-protocol", "v2")
}

func fatal(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func checkOk(status *pb.Status, what string) {
	if status != nil && status.Code != pb.Code_OK && status.Code != pb.Code_MULTIPLE_RESULTS {
		fatal(fmt.Errorf("%s: %v", what, status))
	}
}

// brokerOf asks for the route, as a client does before it receives.
func brokerOf(client pb.MessagingServiceClient) string {
	answer, err := client.QueryRoute(withMetadata(context.Background()), &pb.QueryRouteRequest{
		Topic: resource(*topic),
		Endpoints: &pb.Endpoints{Scheme: pb.AddressScheme_IPv4,
			Addresses: []*pb.Address{{Host: "127.0.0.1", Port: 8081}}}})
	fatal(err)
	checkOk(answer.Status, "route")
	return answer.MessageQueues[0].Broker.Name
}

func resource(name string) *pb.Resource { return &pb.Resource{Name: name} }

// Telemetry opens the stream of settings, which stays open, and waits for the reply.
func telemetry(client pb.MessagingServiceClient) {
	stream, err := client.Telemetry(withMetadata(context.Background()))
	fatal(err)
	clientType := pb.ClientType_PRODUCER
	settings := &pb.Settings{
		ClientType:     &clientType,
		RequestTimeout: durationpb.New(3 * time.Second),
		UserAgent:      &pb.UA{Language: pb.Language_GOLANG, Version: "5.1.4"},
	}
	if *mode == "send" {
		settings.PubSub = &pb.Settings_Publishing{
			Publishing: &pb.Publishing{Topics: []*pb.Resource{resource(*topic)}}}
	} else {
		clientType = pb.ClientType_SIMPLE_CONSUMER
		settings.PubSub = &pb.Settings_Subscription{Subscription: &pb.Subscription{
			Group: resource(*group),
			Subscriptions: []*pb.SubscriptionEntry{{
				Topic:      resource(*topic),
				Expression: &pb.FilterExpression{Type: pb.FilterType_TAG, Expression: "*"}}}}}
	}
	fatal(stream.Send(&pb.TelemetryCommand{Command: &pb.TelemetryCommand_Settings{Settings: settings}}))
	command, err := stream.Recv()
	fatal(err)
	checkOk(command.Status, "settings")
	go func() {
		for {
			if _, err := stream.Recv(); err != nil {
				return
			}
		}
	}()
	request := &pb.HeartbeatRequest{ClientType: clientType}
	if *mode != "send" {
		request.Group = resource(*group)
	}
	answer, err := client.Heartbeat(withMetadata(context.Background()), request)
	fatal(err)
	checkOk(answer.Status, "heartbeat")
}

func (w *worker) send(number int64) {
	body := make([]byte, *bodySize)
	message := &pb.Message{
		Topic: resource(*topic),
		SystemProperties: &pb.SystemProperties{
			MessageId:     fmt.Sprintf("01%012X%08X%08X%04X", rand.Int63n(1<<48), rand.Uint32(), number&0xffffffff, rand.Intn(1<<16)),
			MessageType:   pb.MessageType_NORMAL,
			BodyEncoding:  pb.Encoding_IDENTITY,
			BornTimestamp: timestamppb.Now(),
			BornHost:      "bench",
		},
		Body: body,
	}
	ctx, cancel := context.WithTimeout(withMetadata(context.Background()), 10*time.Second)
	defer cancel()
	answer, err := w.client.SendMessage(ctx, &pb.SendMessageRequest{Messages: []*pb.Message{message}})
	fatal(err)
	checkOk(answer.Status, "send")
	w.count++
}

func (w *worker) receiveAndAck() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	stream, err := w.client.ReceiveMessage(withMetadata(ctx), &pb.ReceiveMessageRequest{
		Group: resource(*group),
		MessageQueue: &pb.MessageQueue{
			Topic: resource(*topic), Id: -1, Permission: pb.Permission_READ_WRITE,
			Broker: &pb.Broker{Name: broker}},
		FilterExpression:   &pb.FilterExpression{Type: pb.FilterType_TAG, Expression: "*"},
		BatchSize:          int32(*batch),
		InvisibleDuration:  durationpb.New(60 * time.Second),
		LongPollingTimeout: durationpb.New(5 * time.Second),
	})
	fatal(err)
	var entries []*pb.AckMessageEntry
	for {
		answer, err := stream.Recv()
		if err == io.EOF {
			break
		}
		fatal(err)
		if status := answer.GetStatus(); status.GetCode() != pb.Code_MESSAGE_NOT_FOUND {
			checkOk(status, "receive")
		}
		if message := answer.GetMessage(); message != nil {
			entries = append(entries, &pb.AckMessageEntry{
				MessageId:     message.SystemProperties.MessageId,
				ReceiptHandle: *message.SystemProperties.ReceiptHandle})
		}
	}
	// As the clients do: one ack for each message.
	for _, entry := range entries {
		answer, err := w.client.AckMessage(withMetadata(ctx), &pb.AckMessageRequest{
			Group: resource(*group), Topic: resource(*topic), Entries: []*pb.AckMessageEntry{entry}})
		fatal(err)
		checkOk(answer.Status, "ack")
		w.count++
	}
}

func processorTime() float64 {
	var usage syscall.Rusage
	fatal(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

func main() {
	flag.Parse()
	security := insecure.NewCredentials()
	if *useTLS {
		security = credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})
	}
	clients := make([]pb.MessagingServiceClient, *channels)
	for i := range clients {
		channel, err := grpc.NewClient("passthrough:///"+*address, grpc.WithTransportCredentials(security))
		fatal(err)
		clients[i] = pb.NewMessagingServiceClient(channel)
		if !*isBare {
			telemetry(clients[i])
		}
		if *mode == "receive" && broker == "" {
			broker = brokerOf(clients[i])
		}
	}
	var isMeasuring, isOver atomic.Bool
	var wait sync.WaitGroup
	workers := make([]*worker, *inFlight)
	for i := range workers {
		w := &worker{client: clients[i%len(clients)]}
		workers[i] = w
		wait.Add(1)
		go func() {
			defer wait.Done()
			wasMeasuring := false
			for number := int64(i); !isOver.Load(); number += int64(*inFlight) {
				if !wasMeasuring && isMeasuring.Load() {
					wasMeasuring, w.count, w.times = true, 0, nil
				}
				start := time.Now()
				if *mode == "send" {
					w.send(number)
				} else {
					w.receiveAndAck()
				}
				w.times = append(w.times, time.Since(start))
			}
		}()
	}
	time.Sleep(time.Duration(*warmUp * float64(time.Second)))
	fmt.Println("measuring") // the caller reads the server's processor time now
	isMeasuring.Store(true)
	start, cpu := time.Now(), processorTime()
	time.Sleep(time.Duration(*seconds * float64(time.Second)))
	isOver.Store(true)
	wait.Wait()
	elapsed := time.Since(start).Seconds()
	var count int64
	var times []time.Duration
	for _, w := range workers {
		count += w.count
		times = append(times, w.times...)
	}
	sort.Slice(times, func(i, j int) bool { return times[i] < times[j] })
	at := func(share float64) float64 {
		if len(times) == 0 {
			return 0
		}
		return float64(times[int(share*float64(len(times)-1))].Microseconds()) / 1000
	}
	fatal(json.NewEncoder(os.Stdout).Encode(map[string]float64{
		"count": float64(count), "seconds": elapsed, "per_s": float64(count) / elapsed,
		"p50_ms": at(0.5), "p99_ms": at(0.99), "client_cpu_s": processorTime() - cpu,
	}))
}
