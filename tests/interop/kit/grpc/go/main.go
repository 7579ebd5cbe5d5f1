// Apache's Go client for gRPC under remote control: producers and consumers are started, used and stopped by name.
//
// The commands are those of GrpcSession.java. A line on stdin is one command, its words separated by tabs: a name,
// then NAME=VALUE, among them its id. Commands run side by side. Each gives one JSON line on stdout,
// {"id":...,"answer":...} or {"id":...,"error":...,"code":...}. The end of stdin ends the session.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

type fields = map[string]any

type options struct {
	command string
	values  map[string]string
}

func parse(line string) options {
	words := strings.Split(line, "\t")
	parsed := options{words[0], map[string]string{}}
	for _, word := range words[1:] {
		name, value, _ := strings.Cut(word, "=")
		parsed.values[name] = value
	}
	return parsed
}

func (o options) has(name string) bool {
	_, found := o.values[name]
	return found
}

func (o options) text(name string, otherwise string) string {
	if value, found := o.values[name]; found {
		return value
	}
	return otherwise
}

func (o options) number(name string, otherwise int) int {
	number, err := strconv.Atoi(o.text(name, strconv.Itoa(otherwise)))
	if err != nil {
		panic(fmt.Sprintf("%s: %s is not a number", o.command, name))
	}
	return number
}

func (o options) duration(name string, otherwiseMs int) time.Duration {
	return time.Duration(o.number(name, otherwiseMs)) * time.Millisecond
}

func (o options) config() *rmq.Config {
	return &rmq.Config{
		Endpoint:      o.text("endpoints", ""),
		ConsumerGroup: o.text("group", ""),
		Credentials: &credentials.SessionCredentials{
			AccessKey: o.text("accessKey", ""), AccessSecret: o.text("secretKey", ""),
		},
	}
}

var commands = map[string]func(options) (any, error){
	"start-producer":    startProducer,
	"send":              send,
	"send-transactions": sendTransactions,
	"checks":            takeChecks,
	"recall":            recall,
	"start-simple":      startSimple,
	"receive":           receive,
	"ack":               ack,
	"change":            change,
	"start-push":        startPush,
	"received":          received,
	"stop":              stop,
}

// What is stopped by name.
var stoppers sync.Map

func stop(o options) (any, error) {
	shutdown, found := stoppers.LoadAndDelete(o.text("name", ""))
	if !found {
		return false, nil
	}
	return true, shutdown.(func() error)()
}

// What a call ended with, and the code of the response, 0 where the client itself refused.
func failure(err error) fields {
	code := int32(0)
	var status *rmq.ErrRpcStatus
	if errors.As(err, &status) {
		code = status.GetCode()
	}
	return fields{"error": err.Error(), "code": code}
}

func run(o options) (answer any, err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("%v", problem)
		}
	}()
	command, found := commands[o.command]
	if !found {
		return nil, fmt.Errorf("unknown command %s", o.command)
	}
	return command(o)
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	answers := json.NewEncoder(os.Stdout)
	answers.SetEscapeHTML(false)
	var writing sync.Mutex
	for lines.Scan() {
		o := parse(lines.Text())
		go func() {
			result := fields{}
			answer, err := run(o)
			if err != nil {
				result = failure(err)
			} else {
				result["answer"] = answer
			}
			result["id"] = o.number("id", 0)
			writing.Lock()
			defer writing.Unlock()
			answers.Encode(result)
		}()
	}
}
